"""What accepting a session does to a case's baseline: what can be accepted, and which samples are kept.

Which sessions are kept is said in session_window. Kept of a process: all samples up to 31, else 31 order statistics,
the sorted samples at the ranks floor((i + 1/2) n / 31), i = 0..30. Each is a value that was measured, bit by bit, and
the middle one (i = 15) is the median. The outer 1.6 % at each end are lost, but for metrics that are judged exactly:
the smallest and the largest take their places there. What a model answered is a vector and is kept whole, in the newest
session alone.

Worked example: of the 93 samples 1, 2, .. 93 these are kept: 2, 5, 8, .. 92; the middle one is 47, the median of all.
Of a counter: 1, 5, 8, .. 89, 93.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from pytest_npubench.errors import BaselineError
from pytest_npubench.store.accepted_session import (
    AcceptedSession,
    AcceptedStack,
    Frozen,
    KeptSamples,
    Quantity,
    Sessions,
    began_at,
)
from pytest_npubench.store.baseline_files import PUBLISHED
from pytest_npubench.store.baseline_format import BaselineCase
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.session_window import joins_anchor, kept, of_newest_level, same_samples, with_newest_answers
from pytest_npubench.verdict.result import BETTER, JUDGED_GATES, Better, GateKind

NUM_KEPT_SAMPLES = 31
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """One metric of a case to accept, as result.Metric; processes is processes x samples in `unit`."""

    name: str
    unit: str
    better: Better
    processes: tuple[tuple[float, ...], ...]
    gate: GateKind = "ratio"
    margin: float | None = None

    @property
    def quantity(self) -> Quantity:
        return Quantity(unit=self.unit, better=self.better, gate=self.gate, margin=self.margin)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case to accept: its hardware, its key (suite/kind/id), the digest of what was measured, its metrics, what it
    was held to that its first acceptance fixes, what it did, counted, and for a case that changed, why it is accepted
    and since which session it is at its new level. is_disturbed: something else used the device for part of it."""

    hardware: str
    case: str
    digest: str
    metrics: tuple[MetricResult, ...]
    frozen: Mapping[str, float] = field(default_factory=dict)
    work: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""
    since: str = ""
    is_disturbed: bool = False

    @property
    def suite(self) -> str:
        return self.case.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResults:
    """What one baseline session measured under one key, the git revision of its suite, and what measured it."""

    session: str
    key: FingerprintKey
    git_revision: str | None
    results: tuple[CaseResult, ...]
    stack: AcceptedStack | None = None


def is_case_key(case: str) -> bool:
    """Whether a text can be a case's key: SUITE/KIND/ID, the suite such that it can begin a file's name."""
    return FILE_NAME.fullmatch(case.partition("/")[0]) is not None and case.count("/") >= 2


def check_results(results: Iterable[CaseResult]) -> None:
    """Raises BaselineError naming case and metric where a result cannot be accepted, or a case has two."""
    seen = set()
    for result in results:
        check_result(result)
        if (result.hardware, result.case) in seen:
            raise BaselineError(f"{result.case}: two results in one session; want one")
        seen.add((result.hardware, result.case))


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """The session that is accepted: its name, when (ISO 8601 with an offset), the git revision of its suite, and what
    measured it."""

    session: str
    accepted_at: str
    git_revision: str | None
    stack: AcceptedStack | None = None

    @property
    def began_at(self) -> datetime:
        return began_at(self.session, self.accepted_at)


def with_result(
    case: BaselineCase | None, result: CaseResult, acceptance: Acceptance, *, history: Sessions
) -> BaselineCase:
    """The case with one session more; `case` itself where it holds that session already, with the same samples.

    `history` is what was accepted for the same measurement so far, under older names too: it decides on the anchor. A
    case whose digest changed measures something else: its sessions go, and `result` is the first of the new ones.
    Sessions that were accepted since a change belong to its new level. How a metric is judged is what the newest
    session says. Raises BaselineError where the session is there with other samples, or a metric changed its unit or
    direction.
    """
    quantities = {metric.name: metric.quantity for metric in result.metrics}
    new = AcceptedSession(
        session=acceptance.session,
        accepted_at=acceptance.accepted_at,
        git_revision=acceptance.git_revision,
        anchor=False,
        metrics={metric.name: kept_samples(metric.processes, metric.gate) for metric in result.metrics},
        work=result.work,
        reason=result.reason,
        is_disturbed=result.is_disturbed,
    )
    new = replace(new, anchor=joins_anchor(of_newest_level((*_of_level(history, result, acceptance), new))[:-1]))
    frozen = _frozen(result, acceptance)
    if case is None or case.digest != result.digest:
        return BaselineCase(digest=result.digest, metrics=quantities, sessions=(new,), frozen=frozen)
    _check_quantities(result.case, case.metrics, quantities)
    for old in case.sessions:
        if old.session == new.session:
            if not same_samples(old.metrics, new.metrics, {**case.metrics, **quantities}):
                raise BaselineError(f"{result.case}: the session {old.session} is accepted already, with other samples")
            return case
    quantities = {**case.metrics, **quantities}
    sessions = _of_level(case.sessions, result, acceptance)
    return replace(
        case,
        metrics=quantities,
        sessions=with_newest_answers(kept((*sessions, new)), quantities),
        frozen=case.frozen or frozen,
    )


def _of_level(sessions: Sessions, result: CaseResult, acceptance: Acceptance) -> Sessions:
    """Keeps the sessions that the new one is held with: those since it changed, also where an earlier change was let
    in for the same reason."""
    if not result.reason:
        return sessions
    since = (session for session in sessions if session.is_since(result.since, acceptance.accepted_at))
    return tuple(replace(session, reason=result.reason) for session in since)


def kept_samples(processes: tuple[tuple[float, ...], ...], gate: GateKind = "ratio") -> KeptSamples:
    """All samples in their order up to NUM_KEPT_SAMPLES a process, else that many order statistics; a vector of answers
    as it is."""
    return KeptSamples(
        processes=tuple(tuple(map(float, _thinned(samples, gate))) for samples in processes),
        num_measured=tuple(len(samples) for samples in processes),
    )


def _frozen(result: CaseResult, acceptance: Acceptance) -> Frozen | None:
    if not result.frozen:
        return None
    return Frozen(
        session=acceptance.session,
        accepted_at=acceptance.accepted_at,
        values={name: float(value) for name, value in result.frozen.items()},
    )


def _thinned(samples: tuple[float, ...], gate: GateKind) -> tuple[float, ...]:
    if len(samples) <= NUM_KEPT_SAMPLES or gate == "answers":
        return samples
    ordered = sorted(samples)
    # floor((i + 1/2) n / 31) in whole numbers
    chosen = [ordered[(2 * i + 1) * len(ordered) // (2 * NUM_KEPT_SAMPLES)] for i in range(NUM_KEPT_SAMPLES)]
    return (ordered[0], *chosen[1:-1], ordered[-1]) if gate == "exact" else tuple(chosen)


def check_result(result: CaseResult) -> None:
    """Raises BaselineError naming case and metric where it cannot be accepted."""
    if not FILE_NAME.fullmatch(result.hardware) or result.hardware == PUBLISHED:
        raise BaselineError(f"hardware {result.hardware!r} cannot name a folder; want letters, digits and . _ -")
    if not is_case_key(result.case):
        raise BaselineError(f"case {result.case!r}: want SUITE/KIND/ID with a suite of letters, digits and . _ -")
    names = [metric.name for metric in result.metrics]
    if not names or len(set(names)) < len(names):
        raise BaselineError(f"{result.case}: want at least one metric and no name twice, found {names}")
    for metric in result.metrics:
        _check_metric(f"{result.case}, metric {metric.name}", metric)
    for what, values in (("frozen", result.frozen), ("work", result.work)):
        for name, value in values.items():
            if not math.isfinite(value):
                raise BaselineError(f"{result.case}, {what} {name}: {value!r} is not a finite number")


def _check_metric(where: str, metric: MetricResult) -> None:
    if metric.better not in BETTER:
        raise BaselineError(f"{where}: better is {metric.better!r}; want {' or '.join(BETTER)}")
    if metric.gate not in JUDGED_GATES:
        raise BaselineError(f"{where}: gate is {metric.gate!r}; want {', '.join(JUDGED_GATES)}")
    if metric.margin is not None and not math.isfinite(metric.margin):
        raise BaselineError(f"{where}: margin {metric.margin!r} is not a finite number")
    if not metric.processes:
        raise BaselineError(f"{where}: no processes")
    for index, samples in enumerate(metric.processes):
        if not samples:
            raise BaselineError(f"{where}, process {index}: no samples")
        if bad := [value for value in samples if not math.isfinite(value)]:
            raise BaselineError(f"{where}, process {index}: sample {bad[0]!r} is not a finite number")


def _check_quantities(case: str, old: Mapping[str, Quantity], new: Mapping[str, Quantity]) -> None:
    for name, quantity in new.items():
        accepted = old.get(name, quantity)
        if (accepted.unit, accepted.better) != (quantity.unit, quantity.better):
            raise BaselineError(
                f"{case}, metric {name}: accepted in {accepted.unit!r}, {accepted.better} is better; "
                f"now in {quantity.unit!r}, {quantity.better}"
            )
