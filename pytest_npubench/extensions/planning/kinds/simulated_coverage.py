"""Does a calibrated simulation predict what was served, and its 90 % band hold 90 % of it?

On the blocks that other cases serve anyway: of models with experts those of `policy`, without policies that pad, whose
padding rows no log counts, and without the pair; of dense models those of `dense_control`. Each round is predicted from
a cost that was calibrated on the other rounds' iterations (simulated.py): TTFT, TPOT and E2E of its block under each
policy, with its own arrivals.

Over the requests of all blocks together a mean must not be off by more than MEAN_ERROR, and a 99th percentile by more
than P99_ERROR. ROUNDS are measured, so that no single one makes the errors. An error that is over its limit by less
than CERTAIN standard deviations, to which the rounds tell it (latency_errors.py), is inconclusive: the machine
may have made it. More rounds are measured then, as many as the hardware file allows.

The three figures of a block are not independent, so each is counted by itself. How many blocks chance lets a band miss
is simulated with their drift shared as it is (rounds_spread.py), where independent blocks would have the binomial
bound. Fewer than LEAST_ROUNDS rounds, and iterations that do not tell the cost, say nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.measurement import LatencyError
from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.suites.protocol import ShownKind
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import blocks, check_whole
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import layered_and_chunked, served
from pytest_npubench.verdict import Gate, Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.extensions.planning.simulated import Figure, Prediction

COVERAGE = 0.9
MEAN_ERROR, P99_ERROR = 0.05, 0.10
HALF_MARGIN = 0.02
CERTAIN = 2.0
ROUNDS = 6
LEAST_ROUNDS = 3  # two to calibrate on, or nothing tells the spread between rounds
NOT_SIMULATED = ("static", "disaggregated")
BANDS = (
    "Each round was predicted with its own arrivals by a step cost that was calibrated on the iterations of the other "
    "rounds; the band holds what the machine's speed does between rounds. Error: predicted over measured - 1; half "
    "width: of the band, over what was measured; both are means over the blocks. p99 error: over the requests."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BandRow:
    """One figure under one policy: of num_blocks those that the band held; predicted over measured - 1, and half of the
    band over what was measured, each as the mean over the blocks; p99_error: that of the 99th percentile over the
    requests."""

    figure: str
    policy: str
    num_blocks: int
    num_covered: int
    error: float
    half_width: float
    p99_error: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedCoverageDetail(ServingDetail):
    """most_misses: what chance lets each figure miss; None and no rows where nothing could be predicted. errors: of
    all requests together, by latency."""

    rate_per_s: float
    coverage: float
    num_rounds: int
    most_misses: int | None
    rows: tuple[BandRow, ...]
    errors: Mapping[str, LatencyError] = field(default_factory=dict)


class SimulatedCoverageKind(LoadExperiment, ShownKind):
    name = "simulated_coverage"
    note = BANDS

    def axes(self, plan: ServingPlan) -> Iterable[Axes]:
        """A case for each load."""
        if not _policies(plan):
            return ()
        return tuple((("workload", load.workload), ("rate", load.rate_name)) for load in plan.loads)

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        if plan.shape.is_dense:
            return layered_and_chunked(case, plan)
        return tuple(served(policy, plan, plan.load(case)) for policy in _policies(plan))

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        from pytest_npubench.extensions.planning.simulated import FIGURES, CalibratedRounds, leave_one_out

        served = {point: blocks(measured, point) for point in self.points(case, plan)}
        for of_point in served.values():
            check_whole(of_point)
        first = next(iter(served.values()))
        rate_per_s, num_rounds = first[0].rate_per_s, len(first)
        if num_rounds < LEAST_ROUNDS:
            return _unknown(rate_per_s, num_rounds, f"{num_rounds} rounds; want at least {LEAST_ROUNDS}")
        try:
            rounds = leave_one_out(plan, served, COVERAGE)
            most = CalibratedRounds.of(plan, served).most_misses(COVERAGE)
        except ConfigError as error:
            return _unknown(rate_per_s, num_rounds, str(error))
        predictions = [one for of_point in rounds for one in of_point]
        figures = {name: [one.figure(name) for one in predictions] for name in FIGURES}
        gates = [
            Gate(
                metric=f"mean {name.upper()} of {len(of_point)} blocks outside the {COVERAGE:.0%} band",
                value=sum(not one.is_covered for one in of_point),
                limit=most,
            )
            for name, of_point in figures.items()
        ]
        errors = _errors(rounds)
        doubts = []
        for metric, off, spread, limit in _limited(errors):
            if limit < off <= limit + CERTAIN * spread:
                certainty = f"{num_rounds} rounds tell to {100 * spread:.2f} %"
                doubts.append(f"{metric} {100 * off:.2f} % > {100 * limit:.2f} %, which {certainty}")
            else:
                gates.append(Gate(metric=metric, value=off, limit=limit, unit="%"))
        verdict = judge_gates(tuple(gates))
        if doubts and not verdict.failing:
            verdict = Verdict(kind=VerdictKind.INCONCLUSIVE, reason="; ".join(doubts))
        by_policy = {point.policy: [one for one in predictions if one.policy == point.policy] for point in served}
        errors_of = {policy: _errors([one] for one in of_point) for policy, of_point in by_policy.items()}
        e2e = figures["e2e"]
        predicted_s, measured_s = (fmean(getattr(one, name) for one in e2e) for name in ("predicted_s", "measured_s"))
        return Judgement(
            verdict=verdict,
            what=f"mean E2E of {len(e2e)} blocks, {rate_per_s:.3g} req/s",
            metrics=tuple(metric for name, of_point in figures.items() for metric in _metrics(name, of_point)),
            measured_s=measured_s,
            predicted_s=predicted_s,
            error=predicted_s / measured_s - 1,
            detail=SimulatedCoverageDetail(
                rate_per_s=rate_per_s,
                coverage=COVERAGE,
                num_rounds=num_rounds,
                most_misses=most,
                rows=tuple(
                    _row(name, of_point, errors_of[policy][name])
                    for name, (policy, of_point) in product(FIGURES, by_policy.items())
                ),
                errors=errors,
            ),
        )

    def settled(self, case: Case, plan: ServingPlan, measured: Measured) -> bool:
        """Once there are ROUNDS, and what they say is certain."""
        if len(measured.rounds) < ROUNDS:
            return False
        try:
            return self.judge(case, plan, measured).verdict.kind is not VerdictKind.INCONCLUSIVE
        except MeasurementError:  # a point failed, which no further round makes good
            return True


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


def _errors(rounds: Iterable[Sequence[Prediction]]) -> dict[str, LatencyError]:
    from pytest_npubench.extensions.planning.latency_errors import latency_errors

    shown = []
    for predictions in rounds:
        real, runs = zip(*[one.requests for one in predictions], strict=True)
        shown.append((list(chain(*real)), [list(chain(*run)) for run in zip(*runs, strict=True)]))
    return latency_errors(shown)


def _limited(errors: Mapping[str, LatencyError]) -> Iterator[tuple[str, float, float, float]]:
    """What is held to which limit: name, size of the error, how well the rounds tell it, limit."""
    for name, error in errors.items():
        yield f"{name} mean error", abs(error.mean_error), error.mean_spread, MEAN_ERROR
        yield f"{name} p99 error", abs(error.p99_error), error.p99_spread, P99_ERROR


def _row(name: str, predictions: Sequence[Prediction], error: LatencyError) -> BandRow:
    figures = [one.figure(name) for one in predictions]
    return BandRow(
        figure=name,
        policy=predictions[0].policy,
        num_blocks=len(figures),
        num_covered=sum(one.is_covered for one in figures),
        error=fmean(one.error for one in figures),
        half_width=fmean(one.half_width for one in figures),
        p99_error=error.p99_error,
    )


def _metrics(name: str, figures: Sequence[Figure]) -> tuple[Metric, ...]:
    half_width = fmean(one.half_width for one in figures)
    return (
        Metric(name=f"{name}_covered_fraction", unit="", value=fmean(one.is_covered for one in figures), gate="none"),
        Metric(name=f"{name}_band_half_width", unit="", value=half_width, gate="difference", margin=HALF_MARGIN),
    )


KIND = SimulatedCoverageKind()
