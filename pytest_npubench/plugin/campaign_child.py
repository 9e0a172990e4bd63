"""The child's side of fresh_process.run_campaign: a pytest that collects, runs no test, and measures one campaign."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.backends.jax_probe import set_memory_share
from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.backends.telemetry.disturbance import DisturbanceLimits
from pytest_npubench.campaign.callable_timing import no_instrumentation
from pytest_npubench.campaign.campaign import Campaign, CampaignSite
from pytest_npubench.campaign.lock import device_lock
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPlan, Progress
from pytest_npubench.campaign.slowed_process import check_not_slowed
from pytest_npubench.core.case import is_answers
from pytest_npubench.errors import MeasurementError, NpubenchError
from pytest_npubench.plugin.fresh_process import CampaignTask
from pytest_npubench.plugin.items import ExpandedCase, expanded_case
from pytest_npubench.plugin.open_devices import OpenDevices, limit_jax
from pytest_npubench.processes.owner import Owner
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal import read_journal
from pytest_npubench.suites.protocol import Site
from pytest_npubench.verdict import VerdictKind

if TYPE_CHECKING:
    from pytest_npubench.plugin.session import BenchSession

JAX_SHARE = 0.9
"""Of a GPU's memory, which JAX takes at once; 0.75 without this."""
TELL_S = 0.5  # how often samples are counted to the owner, who would else wake up in the middle of others


def measure_for_owner(session: BenchSession, items: Sequence[pytest.Item]) -> None:
    """Take the task from the process that started this one, measure it, and hand over what came of it."""
    owner = Owner()
    (task,) = owner.receive()
    news = _News(owner)
    try:
        measured = _measured(session, items, task, news)
    except Exception as error:  # noqa: BLE001 - the owner hears of it; named errors keep their name
        news("error", type(error).__name__, str(error))
    else:
        news("measured", measured)


class _News(Progress):
    """Everything that the owner is told. A record is on the disk once `append` returns."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._num_samples = 0
        self._told_at_s = 0.0

    def __call__(self, kind: str, *values: object) -> None:
        self._owner.send(kind, *values)

    def append(self, record: Mapping[str, object]) -> None:
        self("record", record)
        self._owner.receive()

    def fingerprint(self, opened: Fingerprint) -> Mapping[str, Any]:
        """Tell what was opened; the answer is what workloads are held to on it."""
        self("fingerprint", opened)
        (frozen,) = self._owner.receive()
        return dict(frozen)

    def stage(self, campaign: str, text: str) -> None:
        self("stage", text)

    def begin_round(self, plan: CampaignPlan, index: int, num_samples: int, measured_s: float) -> None:
        self._num_samples = 0
        self("round", index, num_samples, measured_s)

    def sample(self) -> None:
        self._num_samples += 1
        if monotonic() - self._told_at_s >= TELL_S:
            self("samples", self._num_samples)
            self._num_samples, self._told_at_s = 0, monotonic()


def _measured(session: BenchSession, items: Sequence[pytest.Item], task: CampaignTask, news: _News) -> Measured:
    cases = _cases(items, task)
    news("waiting")
    with device_lock(task.locked, task.lock_timeout_s, partial(news, "waiting")):
        news("locked")
        runtime, fingerprint = _open(session, task)
        check_not_slowed()  # behind the import of jax or torch, whose own settings may do so
        frozen = news.fingerprint(fingerprint)
        if not cases:
            return Measured()
        plan, suite, settings = cases[0].plan, cases[0].suite, session.settings
        campaign = Campaign(
            plan,
            [point for case in cases for point in case.points],
            site=CampaignSite(
                devices=task.devices,
                runtime=runtime,
                fingerprint=fingerprint.digest(),
                limits=DisturbanceLimits(other_load=settings.other_load),
            ),
            make_bench=lambda runtime: suite.bench(runtime, plan, Site(folder=settings.journal.parent, frozen=frozen)),
            settled=lambda measured: measured.measure_s >= task.at_least_s and _settled(cases, measured),
            failing=lambda measured: not task.again and any(_needs_more(case, measured) for case in cases),
            journal=news,
            earlier=read_journal(settings.journal) if task.resume else None,
            progress=news,
        )
        with no_instrumentation():
            measured = campaign.measured()
        for line in () if task.again else suite.remarks(plan, campaign.points):
            news("note", line)
        return measured


def _cases(items: Sequence[pytest.Item], task: CampaignTask) -> list[ExpandedCase]:
    """The task's cases among the tests that were collected. Raises MeasurementError where one is not."""
    collected = [case for item in items if (case := expanded_case(item)) is not None]
    cases = {
        case.case.key: case for case in collected if case.plan.key == task.campaign and case.case.key in task.cases
    }
    if missing := task.cases - cases.keys():
        raise MeasurementError(f"the process of {task.campaign} did not collect {min(missing)}")
    return list(cases.values())


def _open(session: BenchSession, task: CampaignTask) -> tuple[Runtime, Fingerprint]:
    """Open the devices. Where the environment hides all others, what is there are these, in their order."""
    devices = task.devices
    limit_jax({devices[0].family})
    set_memory_share(os.environ, JAX_SHARE)  # nobody else computes in this process
    if task.environment:
        devices = tuple(replace(device, visible_index=index) for index, device in enumerate(devices))
    opened = OpenDevices(session.config.rootpath, session.settings.compile_cache, Fingerprint.digest)
    return opened.runtime(devices, task.framework), opened.fingerprint(devices, task.framework)


def _settled(cases: Sequence[ExpandedCase], measured: Measured) -> bool:
    try:
        return all(expanded.kind.settled(expanded.case, expanded.plan, measured) for expanded in cases)
    except NpubenchError:  # a failed point: its case will say so, more rounds would not mend it
        return True


def _needs_more(expanded: ExpandedCase, measured: Measured) -> bool:
    """Whether the case fails its limits so far, or is in doubt of them and not settled. Answers are told once: further
    rounds have none."""
    if is_answers(expanded.case.key):
        return False
    try:
        verdict = expanded.kind.judge(expanded.case, expanded.plan, measured).verdict
        in_doubt = verdict.kind is VerdictKind.INCONCLUSIVE
        return verdict.failing or (in_doubt and not expanded.kind.settled(expanded.case, expanded.plan, measured))
    except NpubenchError:  # likewise
        return False
