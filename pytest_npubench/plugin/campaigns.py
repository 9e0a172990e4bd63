"""The campaigns of a run: which cases belong together, measuring them once, and judging them jointly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.backends.telemetry.disturbance import DisturbanceLimits
from pytest_npubench.campaign.aihub.bench import GraphBench
from pytest_npubench.campaign.aihub.plan import HubPlan
from pytest_npubench.campaign.bucket_bench import BucketBench, bucket_engine, static_bucket_engine
from pytest_npubench.campaign.campaign import Campaign, Site
from pytest_npubench.campaign.offload.bench import OffloadBench
from pytest_npubench.campaign.offload.plan import OffloadPlan
from pytest_npubench.campaign.partition.bench import PartitionBench
from pytest_npubench.campaign.partition.plan import PartitionPlan
from pytest_npubench.campaign.plan import Plan
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import Bench, CampaignPlan, CampaignPoint
from pytest_npubench.campaign.server.bench import ServerBench
from pytest_npubench.campaign.server.plan import ServerPlan
from pytest_npubench.campaign.serving.bench import ServingBench
from pytest_npubench.campaign.serving.plan import ServingPlan
from pytest_npubench.comparison.observation import Key
from pytest_npubench.errors import NpubenchError
from pytest_npubench.plugin.expansion import ExpandedCase
from pytest_npubench.plugin.open_devices import Devices
from pytest_npubench.plugin.regression import MeasuredCase
from pytest_npubench.plugin.remeasure import measure_again
from pytest_npubench.result import Judgement
from pytest_npubench.verdict import Verdict, VerdictKind

if TYPE_CHECKING:
    from pytest_npubench.plugin.session import BenchSession

REMEASURE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A selected case with the id of its test, without the device's number."""

    expanded: ExpandedCase
    node_id: str


class Campaigns:
    """All selected cases that share plan and devices form one campaign; the first case that runs has it measured."""

    def __init__(self, session: BenchSession) -> None:
        self._session = session
        self._members: dict[tuple[str, Devices], list[Member]] = {}
        self._running: dict[tuple[str, Devices], Campaign] = {}
        self._judged: dict[tuple[str, Devices], Mapping[str, Judgement]] = {}

    def add(self, member: Member, devices: Devices) -> None:
        self._members.setdefault((member.expanded.plan.key, devices), []).append(member)

    @property
    def families(self) -> set[str]:
        return {devices[0].family for _, devices in self._members}

    @property
    def remaining(self) -> list[CampaignPlan]:
        """The plans whose campaigns have not begun."""
        return [members[0].expanded.plan for key, members in self._members.items() if key not in self._running]

    def judgement(self, expanded: ExpandedCase, devices: Devices) -> Judgement:
        """The case's judgement, once its whole campaign is measured and judged. Raises DeviceBusyError."""
        key = (expanded.plan.key, devices)
        if key not in self._judged:
            campaign = self._campaign(expanded.plan, devices)
            measured = campaign.measured()
            for line in _policies_of_vllm(campaign):
                self._session.note(line)
            self._judged[key] = self._judge(self._members[key], measured, devices)
            self._session.progress.done()
        return self._judged[key][expanded.case.key]

    @property
    def _at_least_s(self) -> float:
        """A few cases settle in seconds, which a neighbour's burst can fill: a second look has to last."""
        return REMEASURE_S if self._session.settings.remeasuring else 0.0

    def _campaign(self, plan: CampaignPlan, devices: Devices) -> Campaign:
        key, session = (plan.key, devices), self._session
        if key not in self._running:
            cases = [member.expanded for member in self._members[key]]
            self._running[key] = Campaign(
                plan,
                list(_points(cases)),
                site=Site(
                    devices=devices,
                    runtime=session.devices.runtime(devices, plan.framework),
                    fingerprint=session.devices.digest(devices, plan.framework),
                    lock_timeout_s=session.lock_timeout_s,
                    limits=DisturbanceLimits(other_load=session.settings.other_load),
                ),
                make_bench=lambda runtime: make_bench(runtime, plan, session.settings.journal.parent),
                settled=lambda measured: measured.measure_s >= self._at_least_s and _settled(cases, measured),
                journal=session.journal,
                earlier=session.earlier,
                progress=session.progress,
            )
        return self._running[key]

    def _judge(self, members: Sequence[Member], measured: Measured, devices: Devices) -> Mapping[str, Judgement]:
        cases = [
            MeasuredCase(
                case=member.expanded.case.key,
                digest=member.expanded.digest,
                judgement=within_limits(member.expanded, measured),
            )
            for member in members
        ]
        node_ids = {member.expanded.case.key: member.node_id for member in members}
        plan = members[0].expanded.plan

        def again(suspects: Sequence[str], index: int) -> Mapping[Key, tuple[float, ...]]:
            session = self._session
            what = f"{len(suspects)} suspect{'s' if len(suspects) > 1 else ''} again"
            session.progress.stage(plan.key, f"measuring {what}, process {index + 1}/{session.settings.remeasure}")
            session.devices.release()
            chosen = [node_ids[case] for case in suspects]
            return measure_again(session.config, session.settings, chosen, devices).samples

        compared = self._session.regression.judge(cases, self._session.devices.key(devices, plan.framework), again)
        for unit, verdict in compared.suites.items():
            self._session.note(f"{plan.key}, metrics in {unit}: {verdict.kind.value}: {verdict.reason}")
        return compared.judgements


def make_bench(runtime: Runtime, plan: CampaignPlan, folder: Path) -> Bench[Any]:
    """What measures a plan's points; `folder` holds the journal."""
    if isinstance(plan, HubPlan):
        return GraphBench(runtime, plan, folder / "aihub-jobs")
    if isinstance(plan, ServerPlan):
        return ServerBench(runtime, plan)
    if isinstance(plan, ServingPlan):
        return ServingBench(runtime, plan, folder / "models")
    if isinstance(plan, PartitionPlan):
        return PartitionBench(runtime, plan)
    if isinstance(plan, OffloadPlan):
        return OffloadBench(runtime, plan)
    assert isinstance(plan, Plan)
    if plan.engine == "vllm":
        return BucketBench(runtime, plan, partial(bucket_engine, folder=folder))
    return BucketBench(runtime, plan, static_bucket_engine)


def _policies_of_vllm(campaign: Campaign) -> Iterator[str]:
    """What each policy of a serving campaign was to vLLM, in words."""
    plan = campaign.plan
    if isinstance(plan, ServingPlan) and plan.engine == "vllm":
        from pytest_npubench.campaign.serving.vllm_policies import mapping_lines

        for line in mapping_lines(plan, campaign.points):
            yield f"vLLM, {plan.model}, {line}"


def within_limits(expanded: ExpandedCase, measured: Measured) -> Judgement:
    """The case against its absolute limits; invalid with the reason where it was not, or not well, measured. Of another
    engine than ours its detail says so."""
    judgement = _judged(expanded, measured)
    if expanded.plan.framework == "vllm":
        return replace(judgement, detail={**judgement.detail, "engine": "vllm"})
    return judgement


def _judged(expanded: ExpandedCase, measured: Measured) -> Judgement:
    try:
        judgement = expanded.kind.judge(expanded.case, expanded.plan, measured)
    except NpubenchError as error:
        return Judgement(verdict=Verdict(kind=VerdictKind.INVALID, reason=str(error)))
    if measured.num_late_compiles:
        # samples that may hold compile time say nothing: whatever the kind, a compile after warm-up is a failure
        reason = f"{measured.num_late_compiles} compiles after warm-up: its samples may hold compile time"
        return replace(judgement, verdict=Verdict(kind=VerdictKind.FAILED, reason=reason))
    if measured.disturbed is not None:  # what was measured on a throttled or shared device is shown, not judged
        return replace(judgement, verdict=Verdict(kind=VerdictKind.INVALID, reason=measured.disturbed))
    return judgement


def _points(cases: Sequence[ExpandedCase]) -> Iterator[CampaignPoint]:
    for expanded in cases:
        with suppress(NpubenchError):  # a workload that cannot be read: its own case will say so, the others go on
            yield from expanded.kind.points(expanded.case, expanded.plan)


def _settled(cases: Sequence[ExpandedCase], measured: Measured) -> bool:
    try:
        return all(expanded.kind.settled(expanded.case, expanded.plan, measured) for expanded in cases)
    except NpubenchError:  # a failed point: its case will say so, more rounds would not mend it
        return True
