"""What accepting a session does to a case's baseline: which samples and which sessions are kept.

Kept under one key: the newest 20 sessions, the rolling window, and the first one ever accepted as fixed anchor, since
creep of 0.5 % a night is invisible against a window that creeps along. Kept of a process: all samples up to 31, else
31 order statistics, the sorted samples at the ranks floor((i + 1/2) n / 31), i = 0..30. Each is a value that was
measured, the middle one (i = 15) is the median, and the outer 1.6 % at each end are lost. Rounded to 6 digits.

Worked example: of the 93 samples 1, 2, .. 93 these are kept: 2, 5, 8, .. 92; the middle one is 47, the median of all.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_npubench.errors import BaselineError
from pytest_npubench.store.baseline_file import PUBLISHED
from pytest_npubench.store.baseline_format import BETTER, AcceptedSession, BaselineCase, KeptSamples, Quantity

NUM_WINDOW_SESSIONS = 20
NUM_KEPT_SAMPLES = 31
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricResult:
    """One metric of a case to accept: processes is processes x samples in `unit`; better is "lower" or "higher"."""

    name: str
    unit: str
    better: str
    processes: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case to accept: its hardware, its key (suite/kind/id), the digest of what was measured, its metrics."""

    hardware: str
    case: str
    digest: str
    metrics: tuple[MetricResult, ...]

    @property
    def suite(self) -> str:
        return self.case.partition("/")[0]


def check_result(result: CaseResult) -> None:
    """Raises BaselineError naming case and metric where a result cannot be accepted."""
    if not FILE_NAME.fullmatch(result.hardware) or result.hardware == PUBLISHED:
        raise BaselineError(f"hardware {result.hardware!r} cannot name a folder; want letters, digits and . _ -")
    if not FILE_NAME.fullmatch(result.suite) or result.case.count("/") < 2:
        raise BaselineError(f"case {result.case!r}: want SUITE/KIND/ID with a suite of letters, digits and . _ -")
    names = [metric.name for metric in result.metrics]
    if not names or len(set(names)) < len(names):
        raise BaselineError(f"{result.case}: want at least one metric and no name twice, found {names}")
    for metric in result.metrics:
        _check_metric(f"{result.case}, metric {metric.name}", metric)


def with_result(case: BaselineCase | None, result: CaseResult, *, session: str, accepted_at: str) -> BaselineCase:
    """The case with one session more; `case` itself where it holds that session already, with the same samples.

    A case whose digest changed measures something else: its sessions go, and `result` is the first of the new ones.
    Raises BaselineError where the session is there with other samples, or a metric changed its unit or direction.
    """
    metrics = {metric.name: kept_samples(metric.processes) for metric in result.metrics}
    quantities = {metric.name: Quantity(unit=metric.unit, better=metric.better) for metric in result.metrics}
    new = AcceptedSession(session=session, accepted_at=accepted_at, metrics=metrics)
    if case is None or case.digest != result.digest:
        return BaselineCase(digest=result.digest, metrics=quantities, sessions=(new,))
    _check_quantities(result.case, case.metrics, quantities)
    for old in case.sessions:
        if old.session == session:
            if old.metrics != metrics:
                raise BaselineError(f"{result.case}: the session {session} is accepted already, with other samples")
            return case
    return BaselineCase(
        digest=case.digest, metrics={**case.metrics, **quantities}, sessions=_kept_sessions((*case.sessions, new))
    )


def kept_samples(processes: tuple[tuple[float, ...], ...]) -> KeptSamples:
    """All samples in their order up to NUM_KEPT_SAMPLES a process, else that many order statistics; rounded."""
    return KeptSamples(
        processes=tuple(tuple(float(f"{value:.6g}") for value in _thinned(samples)) for samples in processes),
        num_measured=tuple(len(samples) for samples in processes),
    )


def _thinned(samples: tuple[float, ...]) -> tuple[float, ...]:
    if len(samples) <= NUM_KEPT_SAMPLES:
        return samples
    ordered = sorted(samples)
    # floor((i + 1/2) n / 31) in whole numbers
    return tuple(ordered[(2 * i + 1) * len(ordered) // (2 * NUM_KEPT_SAMPLES)] for i in range(NUM_KEPT_SAMPLES))


def _kept_sessions(sessions: tuple[AcceptedSession, ...]) -> tuple[AcceptedSession, ...]:
    return sessions if len(sessions) <= NUM_WINDOW_SESSIONS else (sessions[0], *sessions[1:][-NUM_WINDOW_SESSIONS:])


def _check_metric(place: str, metric: MetricResult) -> None:
    if metric.better not in BETTER:
        raise BaselineError(f"{place}: better is {metric.better!r}; want {' or '.join(BETTER)}")
    if not metric.processes:
        raise BaselineError(f"{place}: no processes")
    for index, samples in enumerate(metric.processes):
        if not samples:
            raise BaselineError(f"{place}, process {index}: no samples")
        if bad := [value for value in samples if not math.isfinite(value)]:
            raise BaselineError(f"{place}, process {index}: sample {bad[0]!r} is not a finite number")


def _check_quantities(case: str, old: Mapping[str, Quantity], new: Mapping[str, Quantity]) -> None:
    for name, quantity in new.items():
        accepted = old.get(name, quantity)
        if accepted != quantity:
            raise BaselineError(
                f"{case}, metric {name}: accepted in {accepted.unit!r}, {accepted.better} is better; "
                f"now in {quantity.unit!r}, {quantity.better}"
            )
