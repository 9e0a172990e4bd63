"""Does a calibrated simulation's 90 % band hold 90 % of what was served? On the blocks that other cases serve anyway.

Each round is predicted from a cost that was calibrated on the other rounds' iterations (simulated.py): mean TTFT, TPOT
and E2E of its block under each policy, with its own arrivals. Those of models with experts are the blocks of `policy`,
without policies that pad, whose padding rows no log counts, and without the pair; those of dense models are the blocks
of `dense_control`. The three figures of a block are not independent, so each is counted by itself. How many blocks
chance lets a band miss is simulated with their drift shared as it is (stats/rounds_spread.py), where independent blocks
would have the binomial bound. Fewer than LEAST_ROUNDS rounds, and iterations that do not tell the cost, say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.errors import ConfigError
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import blocks, check_whole
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import layered_and_chunked, served
from pytest_npubench.verdict import Gate, Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.suites.scheduling.simulated import Prediction

COVERAGE = 0.9
LEAST_ROUNDS = 3  # two to calibrate on, or nothing tells the spread between rounds
NOT_SIMULATED = ("static", "disaggregated")


@dataclass(frozen=True, slots=True, kw_only=True)
class BandRow:
    """One figure under one policy: of num_blocks those that the band held; predicted over measured - 1, and half of the
    band over what was measured, each as the mean over the blocks."""

    figure: str
    policy: str
    num_blocks: int
    num_covered: int
    error: float
    half_width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCoverageDetail(ServingDetail):
    """most_misses: what chance lets each figure miss; None and no rows where nothing could be predicted."""

    rate_per_s: float
    coverage: float
    num_rounds: int
    most_misses: int | None
    rows: tuple[BandRow, ...]


class SimulatedCoverageKind(LoadExperiment):
    name = "simulated_coverage"

    def axes(self, plan: ServingPlan) -> Iterable[Axes]:
        """A case for each load whose iterations our own schedulers plan."""
        if not (plan.service.runs_our_plans and _policies(plan)):
            return ()
        return tuple((("workload", load.workload), ("rate", load.rate_name)) for load in plan.loads)

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        if plan.shape.is_dense:
            return layered_and_chunked(case, plan)
        return tuple(served(policy, plan, plan.load(case)) for policy in _policies(plan))

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        from pytest_npubench.suites.scheduling.simulated import CalibratedRounds, leave_one_out

        found = {point: blocks(measured, point) for point in self.points(case, plan)}
        for own in found.values():
            check_whole(own)
        first = next(iter(found.values()))
        rate_per_s, num_rounds = first[0].rate_per_s, len(first)
        if num_rounds < LEAST_ROUNDS:
            return _unknown(rate_per_s, num_rounds, f"{num_rounds} rounds; want at least {LEAST_ROUNDS}")
        try:
            predictions = leave_one_out(plan, found, COVERAGE)
            most = CalibratedRounds.of(plan, found).most_misses(COVERAGE)
        except ConfigError as error:
            return _unknown(rate_per_s, num_rounds, str(error))
        figures = {one.figure: [other for other in predictions if other.figure == one.figure] for one in predictions}
        gates = tuple(
            Gate(
                metric=f"mean {name.upper()} of {len(own)} blocks outside the {COVERAGE:.0%} band",
                value=sum(not one.is_covered for one in own),
                limit=most,
            )
            for name, own in figures.items()
        )
        rows = tuple(
            _row([one for one in own if one.policy == point.policy]) for own in figures.values() for point in found
        )
        e2e = figures["e2e"]
        predicted_s, measured_s = (fmean(getattr(one, name) for one in e2e) for name in ("predicted_s", "measured_s"))
        return Judgement(
            verdict=judge_gates(gates),
            what=f"mean E2E of {len(e2e)} blocks, {rate_per_s:.3g} req/s",
            metrics=tuple(metric for name, own in figures.items() for metric in _metrics(name, own)),
            measured_s=measured_s,
            predicted_s=predicted_s,
            error=predicted_s / measured_s - 1,
            detail=SimulatedCoverageDetail(
                rate_per_s=rate_per_s, coverage=COVERAGE, num_rounds=num_rounds, most_misses=most, rows=rows
            ),
        )


def _policies(plan: ServingPlan) -> tuple[str, ...]:
    return tuple(policy for policy in plan.size.policies if policy not in NOT_SIMULATED)


def _unknown(rate_per_s: float, num_rounds: int, why: str) -> Judgement:
    return Judgement(
        verdict=Verdict(kind=VerdictKind.INCONCLUSIVE, reason=f"nothing could be predicted: {why}"),
        what="coverage of simulated bands",
        metrics=(),
        detail=SimulatedCoverageDetail(
            rate_per_s=rate_per_s, coverage=COVERAGE, num_rounds=num_rounds, most_misses=None, rows=()
        ),
    )


def _row(own: Sequence[Prediction]) -> BandRow:
    return BandRow(
        figure=own[0].figure,
        policy=own[0].policy,
        num_blocks=len(own),
        num_covered=sum(one.is_covered for one in own),
        error=fmean(one.predicted_s / one.measured_s - 1 for one in own),
        half_width=_half_width(own),
    )


def _metrics(name: str, own: Sequence[Prediction]) -> tuple[Metric, ...]:
    covered = fmean(one.is_covered for one in own)
    return (
        Metric(name=f"{name}_covered_fraction", unit="", value=covered, gate="none"),
        Metric(name=f"{name}_band_half_width", unit="", value=_half_width(own), gate="none"),
    )


def _half_width(own: Sequence[Prediction]) -> float:
    return fmean((one.high_s - one.low_s) / 2 / one.measured_s for one in own)


KIND = SimulatedCoverageKind()
