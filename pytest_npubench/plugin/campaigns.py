"""The campaigns of a run: which cases belong together, measuring them once in a child process, judging them jointly.

BusyDevices are those that a run waited for in vain: it waits once, and from then on looks whether they are free. A run
of many campaigns and tests would else wait --npubench-lock-timeout for each of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.lock import device_lock
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPlan, FrozenWorkload
from pytest_npubench.comparison.observation import Key
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.engines.descriptor import EngineDescriptor
from pytest_npubench.errors import DeviceBusyError, JournalError, MeasurementError, NpubenchError
from pytest_npubench.plain_text import counted
from pytest_npubench.plugin import fresh_process
from pytest_npubench.plugin.fresh_process import CampaignTask, Heard, run_campaign
from pytest_npubench.plugin.items import ExpandedCase
from pytest_npubench.plugin.progress import CaseProgress
from pytest_npubench.plugin.regression import MeasuredCase, Regression
from pytest_npubench.plugin.settings import Settings
from pytest_npubench.plugin.timeout_bridge import timeout_as_error
from pytest_npubench.reports.number_text import duration
from pytest_npubench.store.fingerprint import Fingerprint, FingerprintKey
from pytest_npubench.store.journal import JournalWriter
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.result import Judgement

Devices = tuple[Device, ...]
REMEASURE_S = 30.0
UNUSABLE = frozenset({VerdictKind.INVALID, VerdictKind.FAILED})
CampaignKey = tuple[str, Devices]


class BusyDevices:
    """What was told of devices that were in use, by device."""

    def __init__(self) -> None:
        self._busy: dict[Devices, DeviceBusyError] = {}

    def note(self, devices: Devices, error: DeviceBusyError) -> None:
        """Notes that another process of this run waited for the devices in vain."""
        self._busy.setdefault(devices, error)

    def check(self, devices: Devices) -> None:
        """Raises the DeviceBusyError that these devices ended with before, where they are in use still."""
        if devices in self._busy:
            with self.lock(devices, 0.0):
                pass

    @contextmanager
    def lock(
        self, devices: Devices, timeout_s: float, on_wait: Callable[[str], None] = lambda text: None
    ) -> Iterator[None]:
        """Locks as device_lock does, without waiting for devices that were waited for in vain before."""
        with ExitStack() as locks:
            try:
                locks.enter_context(device_lock(devices, 0.0 if devices in self._busy else timeout_s, on_wait))
            except DeviceBusyError as error:
                self.note(devices, error)
                raise self._busy[devices] from None
            self._busy.pop(devices, None)
            yield


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignMember:
    """A selected case with the test function that has it: its file's absolute path and its names."""

    expanded: ExpandedCase
    test: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """What campaigns use of a run. `release()` closes the devices that this process has open. `visible(devices,
    framework)`: the environment in which a process sees these devices alone. `note(text)`: about the run as a whole.
    `resume`: what the journal held before may be taken over.
    known_s: seconds that campaigns and own cases took before, by key.
    lock_timeout_s: for a device that is in use, below 0 for ever; `busy`: those that were waited for in vain."""

    config: pytest.Config
    settings: Settings
    release: Callable[[], None]
    journal: JournalWriter
    resume: bool
    known_s: Mapping[str, float]
    regression: Regression
    progress: CaseProgress
    lock_timeout_s: float
    busy: BusyDevices
    visible: Callable[[Devices, EngineDescriptor | None], Mapping[str, str]]
    note: Callable[[str], None]


class Campaigns:
    """All selected cases that share plan and devices form one campaign; the first case that runs has it measured."""

    def __init__(self, workbench: Workbench) -> None:
        self._workbench = workbench
        self._members: dict[CampaignKey, list[CampaignMember]] = {}
        self._begun: set[CampaignKey] = set()
        self._judged: dict[CampaignKey, Mapping[str, Judgement] | NpubenchError] = {}
        self._fingerprints: dict[tuple[Devices, str], Fingerprint] = {}
        self._frozen: dict[CampaignKey, Mapping[str, FrozenWorkload]] = {}
        self.own_cases: Set[str] = frozenset()
        """Keys of the user's own cases, which belong to no campaign."""
        self.spent_s = 0.0
        """Seconds that campaigns took so far, which no case's own time has."""

    def add(self, expanded: ExpandedCase, test: str, devices: Devices) -> None:
        member = CampaignMember(expanded=expanded, test=test)
        self._members.setdefault((expanded.plan.key, devices), []).append(member)

    @property
    def remaining_s(self) -> float:
        """What the campaigns that have not begun took before, or their budgets."""
        return sum(self._expected_s(key) for key in self._members if key not in self._begun)

    def _expected_s(self, key: CampaignKey) -> float:
        return self._workbench.known_s.get(key[0], self._members[key][0].expanded.plan.size.budget_s)

    @property
    def estimate(self) -> str:
        """What the run takes, before anything is measured. Own cases count by what earlier runs took; empty where there
        is nothing to go by."""
        own_s = [self._workbench.known_s[key] for key in self.own_cases if key in self._workbench.known_s]
        num_known = sum(name in self._workbench.known_s for name, _ in self._members)
        by_budget = f"{'its budget' if len(self._members) - num_known == 1 else 'their budgets'}, without compiling"
        before = "as in earlier runs, with what they compiled"
        if num_known == len(self._members):
            why = f" {before}"
        elif num_known:
            why = f": {num_known} {before}; {len(self._members) - num_known} by {by_budget}"
        else:
            why = f" by {by_budget}"
        counts = {"campaign": len(self._members), "own case": len(own_s)}
        what = [counted(number, noun) for noun, number in counts.items() if number]
        if uncounted := len(self.own_cases) - len(own_s):
            why += f"; {counted(uncounted, 'own case')} not counted"
        seconds = self.remaining_s + sum(own_s)
        return f"npubench: {' and '.join(what)}, about {duration(seconds)}{why}" if what else ""

    def fingerprint(self, plan: CampaignPlan, devices: Devices) -> str | None:
        """The digest of the stack that measures a plan, None where no child has opened the devices yet."""
        fingerprint = self._fingerprints.get((devices, plan.framework))
        return None if fingerprint is None else fingerprint.digest()

    def found_fingerprint(self, expanded: ExpandedCase, devices: Devices) -> str:
        """The fingerprint, by a child that only reads it. Raises what opening the devices raises."""
        plan = expanded.plan
        if (devices, plan.framework) not in self._fingerprints:
            self._run(plan, self._members[plan.key, devices][:1], devices, fingerprint_only=True)
        return self._fingerprints[devices, plan.framework].digest()

    def judgement(self, expanded: ExpandedCase, devices: Devices) -> Judgement:
        """The case's judgement, once its whole campaign is measured and judged.

        Raises the error that ended the campaign, such as DeviceBusyError: the same for all its cases.
        """
        key = (expanded.plan.key, devices)
        if key not in self._judged:
            self._begun.add(key)
            try:
                measured = self._run(expanded.plan, self._members[key], devices)
                self._judged[key] = self._judge(self._members[key], measured, devices)
            except JournalError:
                raise
            except NpubenchError as error:
                self._judged[key] = error
            self._workbench.progress.done()
        judged = self._judged[key]
        if isinstance(judged, NpubenchError):
            raise judged
        return judged[expanded.case.key]

    def _run(
        self,
        plan: CampaignPlan,
        members: Sequence[CampaignMember],
        devices: Devices,
        *,
        fingerprint_only: bool = False,
        again: Mapping[str, Any] | None = None,
    ) -> Measured:
        """Measure these members' cases in a child, or have it tell the fingerprint and end. `again`: what workloads
        were held to when these cases, suspects by now, were measured first."""
        bench, started_s = self._workbench, perf_counter()
        bench.release()  # a test of the user's own may have opened them
        engine = members[0].expanded.engine
        locked = devices if engine is None or engine.has_devices else ()
        bench.busy.check(locked)
        stack = (devices, plan.framework)

        def on_fingerprint(opened: Fingerprint) -> Mapping[str, Any]:
            first_key = self._fingerprints.setdefault(stack, opened).key()
            if differences := first_key.differences(opened.key()):
                raise MeasurementError(f"the fresh process runs on another stack: {'; '.join(differences)}")
            if again is not None:
                return again
            bench.journal.device(opened)
            return {} if fingerprint_only else self._held_to(members[0], devices, opened.key())

        def on_record(record: Mapping[str, object]) -> None:
            if again is None:  # its samples stand beside the first ones, in the records of its cases
                bench.journal.append(record)

        task = CampaignTask(
            campaign=plan.key,
            cases=frozenset(member.expanded.case.key for member in members if not fingerprint_only),
            tests=tuple(dict.fromkeys(member.test for member in members)),
            devices=devices,
            locked=locked,
            framework=plan.framework,
            environment=bench.visible(devices, engine),
            lock_timeout_s=bench.lock_timeout_s,
            at_least_s=0.0 if again is None else REMEASURE_S,
            resume=bench.resume and again is None,
            again=again is not None,
        )
        heard = Heard(fingerprint=on_fingerprint, record=on_record, note=bench.note, progress=bench.progress, plan=plan)
        try:
            with timeout_as_error():
                return run_campaign(bench.config, bench.settings, task, heard)
        except DeviceBusyError as error:
            bench.busy.note(devices, error)
            raise
        finally:
            self.spent_s += perf_counter() - started_s

    def _held_to(self, member: CampaignMember, devices: Devices, key: FingerprintKey) -> Mapping[str, Any]:
        """What was frozen for the workloads of a member's campaign; the run notes what is of another stack."""
        bench, plan = self._workbench, member.expanded.plan
        frozen = member.expanded.suite.frozen(plan, bench.regression.baselines, key, bench.settings.compare_across)
        self._frozen[plan.key, devices] = frozen
        for workload, frozen_workload in frozen.items():
            if frozen_workload.is_of_other_stack:
                bench.note(f"{plan.key}, {workload}: rate and limits {frozen_workload.origin}")
        return {workload: frozen_workload.calibration for workload, frozen_workload in frozen.items()}

    def _judge(
        self, members: Sequence[CampaignMember], measured: Measured, devices: Devices
    ) -> Mapping[str, Judgement]:
        plan = members[0].expanded.plan
        frozen = self._frozen.get((plan.key, devices), {})
        cases = [
            MeasuredCase(
                case=member.expanded.case.key,
                digest=member.expanded.digest,
                judgement=within_limits(member.expanded, measured, frozen),
            )
            for member in members
        ]
        stack = self._fingerprints[devices, plan.framework]
        again = partial(self._again, members, devices, _used(members, measured))
        compared = self._workbench.regression.judge(cases, stack.key(), again, stack=stack)
        for note in compared.notes:
            self._workbench.note(f"{plan.key}, {note}")
        return compared.judgements

    def _again(
        self,
        members: Sequence[CampaignMember],
        devices: Devices,
        used: Mapping[str, Any],
        suspects: Sequence[str],
        index: int,
    ) -> Mapping[Key, tuple[float, ...]]:
        """The suspects' samples by (case, metric) from one fresh process. Raises NpubenchError where it has none."""
        plan, number = members[0].expanded.plan, self._workbench.settings.remeasure
        what = f"{len(suspects)} suspect{'s' if len(suspects) > 1 else ''} again"
        self._workbench.progress.stage(plan.key, f"measuring {what}, process {index + 1}/{number}")
        time.sleep(fresh_process.COOLDOWN_S)
        chosen = [member for member in members if member.expanded.case.key in suspects]
        measured = self._run(plan, chosen, devices, again=used)
        judgements = {member.expanded.case.key: within_limits(member.expanded, measured) for member in chosen}
        usable = {case: found for case, found in judgements.items() if found.verdict.kind not in UNUSABLE}
        if not usable:
            why = next(iter(judgements.values())).verdict.reason
            raise MeasurementError(f"the fresh process measured nothing: {why}")
        return {(case, metric.name): metric.processes[0] for case, found in usable.items() for metric in found.metrics}


def within_limits(
    expanded: ExpandedCase, measured: Measured, frozen: Mapping[str, FrozenWorkload] | None = None
) -> Judgement:
    """The case against its absolute limits; invalid with the reason where it was not, or not well, measured. It says
    what it was held to, by `frozen` or not, and of another engine than the reference which."""
    judgement, plan, engine = _judged(expanded, measured), expanded.plan, expanded.engine
    suite, points = expanded.suite, expanded.points
    judgement = replace(judgement, work=suite.work(plan, points, measured))
    if judgement.verdict.kind is not VerdictKind.INVALID:
        judgement = suite.held_to(judgement, plan, points, measured, frozen or {})
        if reason := suite.impossible(plan, points, measured):
            judgement = replace(judgement, verdict=Verdict(kind=VerdictKind.INVALID, reason=reason))
    if engine is None or engine.is_reference:
        return judgement
    return replace(judgement, engine=engine.name)


def _used(members: Sequence[CampaignMember], measured: Measured) -> Mapping[str, Any]:
    """What workloads were held to in rounds that were measured."""
    points = [point for member in members for point in member.expanded.points]
    return members[0].expanded.suite.used(points, measured)


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
        verdict = Verdict(kind=VerdictKind.INVALID, reason=measured.disturbed)
        return replace(judgement, verdict=verdict, is_disturbed=True)
    return replace(judgement, is_partly_disturbed=measured.is_partly_disturbed)
