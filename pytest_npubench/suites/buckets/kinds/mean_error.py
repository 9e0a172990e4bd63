"""The mean absolute prediction error over a campaign's workloads, held to its own, tighter limit (LENS: 2.15 %)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.kinds.prediction import KIND as PREDICTION
from pytest_npubench.suites.buckets.kinds.prediction import (
    PredictionError,
    arithmetic,
    beside,
    explained,
    gate_interval,
    prediction_error,
)
from pytest_npubench.suites.buckets.plan import BucketPlan, is_continuous, nominal_words
from pytest_npubench.suites.buckets.points import BucketPoint
from pytest_npubench.verdict import Gate, VerdictKind, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.predictors.protocol import Predictor
    from pytest_npubench.stats.error import ErrorSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalErrors:
    """The errors of a predictor beside LENS, as in ErrorSummary, or the reason why it has none."""

    num_cases: int = 0
    signed_mean: float | None = None
    mean: float | None = None
    median: float | None = None
    p90: float | None = None
    max: float | None = None
    under_5_percent_fraction: float | None = None
    reason: str | None = None
    basis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanErrorDetail:
    """LENS's errors over the workloads, as in ErrorSummary."""

    num_cases: int
    signed_mean: float
    mean: float
    median: float
    p90: float
    max: float
    under_5_percent_fraction: float
    continuous: bool = False
    predictors: Mapping[str, RivalErrors] = field(default_factory=dict)


class MeanErrorKind(BucketKind):
    name = "mean_error"

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        return tuple(
            dict.fromkeys(
                point
                for axes in PREDICTION.axes(plan)
                for point in PREDICTION.points(plan.case(self.suite, PREDICTION.name, axes), plan)
            )
        )

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        errors = [prediction_error(plan, measured, workload) for workload in plan.size.workloads]
        summary, interval = _summary(errors), gate_interval(errors)
        gate = Gate(
            metric="mean prediction error", value=summary.mean, limit=plan.mean_error, unit="%", interval=interval
        )
        exact = [one for workload in plan.size.workloads for one in arithmetic(plan, measured, workload)]
        broken = [one for one in exact if one.value > one.limit][:1]  # the prediction cases name each
        continuous = is_continuous(plan, measured)
        return Judgement(
            verdict=explained(judge_gates((gate, *broken)), None, nominal_words(plan) if continuous else ""),
            what=f"E2E of {summary.num_cases} workloads",
            metrics=(Metric(name="mean_prediction_error", unit="", value=summary.mean, gate="difference"),),
            measured_s=sum(sum(item.measured_s) for item in errors),
            predicted_s=sum(sum(item.predicted_s) for item in errors),
            error=summary.mean,
            error_interval=interval,
            detail=MeanErrorDetail(
                **asdict(summary),
                continuous=continuous,
                predictors=beside(
                    plan.rivals,
                    lambda rival: _rival_errors(plan, measured, rival),
                    lambda reason: RivalErrors(reason=reason),
                ),
            ),
        )

    def settled(self, case: Case, plan: BucketPlan, measured: Measured) -> bool:
        """Whether it is known on which side of the limit the error is."""
        return self.judge(case, plan, measured).verdict.kind is not VerdictKind.INCONCLUSIVE


def _summary(errors: Iterable[PredictionError]) -> ErrorSummary:
    """Summarises what the cases are held to, with the sign of the sum's error."""
    from pytest_npubench.stats.error import summarise

    return summarise([item.error.gate_value * (1 if item.error.sum_error >= 0 else -1) for item in errors])


def _rival_errors(plan: BucketPlan, measured: Measured, rival: Predictor) -> RivalErrors:
    summary = _summary([prediction_error(plan, measured, name, rival) for name in plan.size.workloads])
    return RivalErrors(**asdict(summary), basis=rival.basis)


KIND = MeanErrorKind()
