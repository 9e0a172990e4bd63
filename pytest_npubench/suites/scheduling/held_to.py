"""What the cases of a workload are held to: its rate and limits as the hardware file states them, else as the first
accepted session froze them, else as this campaign measured them.

A rate and limits that each run measures for itself would let a slower device attain as much (docs/scheduling.md). So a
case records the calibration that it was held to (verdict.result.Judgement.frozen), and its first acceptance keeps it.

All cases of a workload share the calibration that was frozen first: of the case's own key, or else of another stack of
the same device, which a note of the run says.

Worked example: night 1 measures a full rate of 0.88 requests/s and is accepted. Later nights arrive at 0.9 of 0.88
= 0.79 requests/s with a limit on TTFT of 15 / 0.88 = 17.0 s, on any driver, until the cases are reset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from itertools import chain

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import Calibration
from pytest_npubench.campaign.visits import Round
from pytest_npubench.errors import MeasurementError
from pytest_npubench.store.baselines import OTHER_STACK, Baselines, FoundFrozen
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.suites.scheduling import SUITE
from pytest_npubench.suites.scheduling.experiment import HeldTo, ServingDetail
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint, ServingPoint
from pytest_npubench.verdict.result import Judgement

VALUES = tuple(field.name for field in fields(Calibration))
STATED, MEASURED = "stated in the hardware file", "measured in this campaign"


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenCalibration:
    """A workload's calibration as a baseline keeps it, and in words where that is from."""

    calibration: Calibration
    origin: str
    is_of_other_stack: bool


def frozen_calibrations(
    plan: ServingPlan, baselines: Baselines, key: FingerprintKey, across: Sequence[str]
) -> Mapping[str, FrozenCalibration]:
    """Returns the calibrations there are, by workload. Raises ConfigError where `across` names no part of a key."""
    frozen: dict[str, FoundFrozen] = {}
    for name in filter(plan.includes, SUITE.kinds):
        kind = SUITE.kind(name)
        for case in (plan.case(kind.suite, name, axes) for axes in kind.axes(plan)):
            entry = baselines.found_frozen(case.key, key, digest=case.digest(plan.settings), across=across)
            if entry is not None and set(VALUES) <= entry.frozen.values.keys():
                workload = str(case.axis("workload"))
                frozen[workload] = min(frozen.get(workload, entry), entry, key=lambda item: item.order)
    return {workload: _of(entry, key) for workload, entry in frozen.items()}


def _of(entry: FoundFrozen, key: FingerprintKey) -> FrozenCalibration:
    origin = f"frozen on {entry.frozen.accepted_at[:10]} in {entry.frozen.session}"
    if differences := entry.key.differences(key):
        origin += f" under another stack ({', '.join(differences)})"
    return FrozenCalibration(
        calibration=Calibration(**{name: entry.frozen.values[name] for name in VALUES}),
        origin=origin,
        is_of_other_stack=entry.nearness == OTHER_STACK,
    )


def calibrations_in(points: Iterable[ServingPoint], rounds: Sequence[Round]) -> Mapping[str, Calibration]:
    """Returns the calibrations under which rounds were served, by workload."""
    calibrations: dict[str, Calibration] = {}
    measured = Measured(rounds=list(rounds))
    for point in points:
        if isinstance(point, ServedPoint) and point.load.workload not in calibrations:
            with suppress(MeasurementError):  # no round visited it
                visits = chain.from_iterable(measured.visits(point.name, Calibration))
                if (first := next(visits, None)) is not None:
                    calibrations[point.load.workload] = first
    return calibrations


def with_held_to(
    judgement: Judgement,
    plan: ServingPlan,
    points: Sequence[ServingPoint],
    measured: Measured,
    frozen: Mapping[str, FrozenCalibration],
) -> Judgement:
    """Adds the load and the limits that a case was held to, and their origin, to its judgement; a case whose requests
    all arrive at once stays as it is. A calibration that the run measured is to be frozen."""
    served = [point for point in points if isinstance(point, ServedPoint) and not point.at_once]
    if not served:
        return judgement
    load = served[0].load
    origin = STATED
    values: Mapping[str, float] = {}
    if (used := calibrations_in(served, measured.rounds).get(load.workload)) is not None:
        calibration = frozen.get(load.workload)
        origin = calibration.origin if calibration is not None and calibration.calibration == used else MEASURED
        values = asdict(used)
    limits = plan.spec.slo_for(plan.model, load.workload)
    rate, of_limits = STATED if load.rate_per_s is not None else origin, STATED if limits is not None else origin
    if rate == of_limits == STATED:
        values = {}  # what was frozen before the file said so holds nothing now
    in_words = f"rate and limits {rate}" if rate == of_limits else f"rate {rate}, limits {of_limits}"
    held_to = HeldTo(rate=rate, limits=of_limits, in_words=in_words, **values)
    verdict = judgement.verdict
    if verdict.failing and values:
        verdict = replace(verdict, reason=f"{verdict.reason}; {in_words}")
    assert isinstance(judgement.detail, ServingDetail)  # the detail of every kind of the suite
    detail = replace(judgement.detail, held_to=held_to)
    return replace(judgement, verdict=verdict, detail=detail, frozen=values)
