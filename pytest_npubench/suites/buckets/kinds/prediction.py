"""LENS against the measured end-to-end time of batches drawn from a workload (LENS, section 5.2).

The prediction comes from the profile points alone; the batches it is judged on are other samples of the same rounds.
The error of a case is the larger of |sum P - sum M| / sum M and the mean of |P - M| / M over its batches.

Rivals that a run asks for (--npubench-predictors) are fitted on the same profile points and held against the same
batches; their errors stand beside LENS's, and no case is held to them.

Where the engine has no buckets (vLLM on a CPU) those of the plan are nominal: lengths at which a slope is measured, and
LENS interpolates between them (predictors/ragged.py). The limit is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import stdev
from typing import TYPE_CHECKING, TypeVar

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.measurement import CostRecord
from pytest_npubench.errors import NpubenchError
from pytest_npubench.predictors import predictor
from pytest_npubench.suites.buckets.active import is_settled
from pytest_npubench.suites.buckets.plan import BucketPlan, is_continuous, many_requests, nominal_words
from pytest_npubench.suites.buckets.points import BucketPoint
from pytest_npubench.verdict import Gate, Verdict, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.predictors.protocol import Predictor
    from pytest_npubench.stats.error import CaseError

SETTLED_HALF_WIDTH = 0.01
MIN_JACKKNIFE_ROUNDS = 3

RivalT = TypeVar("RivalT")


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionError:
    """Predicted and measured seconds of a workload's batches, and the 95 % half width of the error of their sum."""

    predicted_s: tuple[float, ...]
    measured_s: tuple[float, ...]
    error: CaseError
    half_width: float | None
    repeat_error: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalDetail:
    """What a predictor beside LENS made of the same batches, or the reason why it made nothing. basis: what is said
    beside its figures."""

    predicted_s: tuple[float, ...] = ()
    error: float | None = None
    mape: float | None = None
    gate_error: float | None = None
    half_width: float | None = None
    cost: CostRecord | None = None
    reason: str | None = None
    basis: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionDetail:
    """Seconds of each drawn batch; errors and shares of padding as fractions. Where nothing ran, as on graphs, there
    is the prediction alone; padding is None where the engine pads nothing. num_output_tokens: of all
    batches. cost: of LENS's profile of these buckets, moves of the KV cache in it."""

    workload: str
    predicted_s: tuple[float, ...]
    measured_s: tuple[float, ...] = ()
    mape: float | None = None
    gate_error: float | None = None
    dropped_fraction: float | None = None
    num_dropped: int | None = None
    num_drawn: int | None = None
    prefill_padding_fraction: float | None = None
    decode_padding_fraction: float | None = None
    continuous: bool = False
    num_output_tokens: int | None = None
    cost: CostRecord | None = None
    predictors: Mapping[str, RivalDetail] = field(default_factory=dict)


class PredictionKind:
    name = "prediction"
    suite = "buckets"

    def axes(self, plan: BucketPlan) -> Iterable[Axes]:
        return ((("workload", workload),) for workload in plan.size.workloads)

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        batches = plan.draws(str(case.axis("workload")))
        buckets = plan.profiled(batches)
        profiled = tuple(plan.profile_point(point) for point in plan.profile_points(buckets))
        return (*profiled, *plan.moves(buckets[1:]), *batches, *plan.beside(buckets))

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        from pytest_npubench.predictors.lens import PREDICTOR as LENS

        workload = str(case.axis("workload"))
        found = prediction_error(plan, measured, workload)
        error, half = found.error, found.half_width
        total_s = sum(found.measured_s)
        rounds = zip(*(measured.round_means_s(point.name) for point in plan.draws(workload)), strict=False)
        gate = Gate(metric="prediction error", value=error.gate_value, limit=plan.case_error, unit="%")
        padding, sample = _padding(plan, measured, workload), plan.sample(workload)
        continuous = is_continuous(plan, measured)
        return Judgement(
            verdict=_explained(judge_gates((gate,)), found, nominal_words(plan) if continuous else ""),
            what=f"E2E of {len(found.measured_s)} batches",
            metrics=(
                Metric(name="e2e_s", unit="s", value=total_s, samples=tuple(sum(row) for row in rounds)),
                Metric(name="prediction_error", unit="", value=error.gate_value, gate="difference"),
                *(Metric(name=name, unit="", value=fraction, gate="none") for name, fraction in padding.items()),
            ),
            measured_s=total_s,
            predicted_s=sum(found.predicted_s),
            error=error.sum_error,
            error_interval=None if half is None else (error.sum_error - half, error.sum_error + half),
            repeat_error=found.repeat_error,
            detail=PredictionDetail(
                workload=workload,
                predicted_s=found.predicted_s,
                measured_s=found.measured_s,
                mape=error.mape,
                gate_error=error.gate_value,
                dropped_fraction=sample.dropped_fraction,
                num_dropped=sample.num_dropped,
                num_drawn=sample.num_drawn,
                **padding,
                continuous=continuous,
                num_output_tokens=sum(one.output_tokens for one in sample.requests),
                cost=_cost(plan, measured, workload, LENS),
                predictors=beside(
                    plan.rivals,
                    lambda rival: _rival_detail(plan, measured, workload, rival),
                    lambda reason: RivalDetail(reason=reason),
                ),
            ),
        )

    def settled(self, case: Case, plan: BucketPlan, measured: Measured) -> bool:
        half_width = prediction_error(plan, measured, str(case.axis("workload"))).half_width
        return half_width is not None and half_width <= SETTLED_HALF_WIDTH and is_settled(plan, measured)


def _explained(verdict: Verdict, found: PredictionError, nominal: str) -> Verdict:
    """A failing verdict also says how well the error is known, so that noise is not taken for a wrong model, and a
    nominal bucket not for a real one."""
    parts = []
    if found.half_width is not None and found.repeat_error is not None:
        parts.append(f"95 % interval ±{found.half_width:.1%}, repeat error {found.repeat_error:.1%}")
    if nominal:
        parts.append(nominal)
    if not verdict.failing or not parts:
        return verdict
    return replace(verdict, reason=f"{verdict.reason} ({'; '.join(parts)})")


def beside(
    rivals: Sequence[str], figures: Callable[[Predictor], RivalT], failed: Callable[[str], RivalT]
) -> dict[str, RivalT]:
    """What a case says of rivals, each by its figures or by the reason why it has none."""
    found: dict[str, RivalT] = {}
    for name in rivals:
        try:
            found[name] = figures(predictor(name))
        except Exception as error:  # noqa: BLE001 - whatever a rival raises, it is no matter of the case
            found[name] = failed(str(error) if isinstance(error, NpubenchError) else f"{type(error).__name__}: {error}")
    return found


def prediction_error(
    plan: BucketPlan, measured: Measured, workload: str, of: Predictor | None = None
) -> PredictionError:
    """Predicted against measured for one workload, by LENS unless told. Raises MeasurementError where a point of either
    side failed."""
    from pytest_npubench.predictors.lens import PREDICTOR as LENS
    from pytest_npubench.stats.error import case_error, repeat_error

    of = of or LENS
    predicted_s, measured_s = _seconds(plan, measured, workload, of)
    repeats = [repeat_error(measured.samples(batch.name).samples_s) for batch in plan.draws(workload)]
    known = [error * mean for error, mean in zip(repeats, measured_s, strict=True) if error is not None]
    return PredictionError(
        predicted_s=predicted_s,
        measured_s=measured_s,
        error=case_error(predicted_s, measured_s),
        half_width=_half_width(plan, measured, workload, of),
        repeat_error=math.hypot(*known) / sum(measured_s) if len(known) == len(repeats) else None,
    )


def _rival_detail(plan: BucketPlan, measured: Measured, workload: str, rival: Predictor) -> RivalDetail:
    found = prediction_error(plan, measured, workload, rival)
    return RivalDetail(
        predicted_s=found.predicted_s,
        error=found.error.sum_error,
        mape=found.error.mape,
        gate_error=found.error.gate_value,
        half_width=found.half_width,
        cost=_cost(plan, measured, workload, rival),
        basis=rival.basis,
    )


def _cost(plan: BucketPlan, measured: Measured, workload: str, of: Predictor) -> CostRecord:
    from pytest_npubench.suites.buckets.profile_samples import profile_samples

    return of.cost(profile_samples(plan, measured, plan.profiled(plan.draws(workload))))


def _seconds(
    plan: BucketPlan, measured: Measured, workload: str, of: Predictor
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Predicted and measured seconds of each of the workload's batches."""
    from pytest_npubench.suites.buckets.profile_samples import profile_samples

    batches = plan.draws(workload)
    fitted = of.fit(profile_samples(plan, measured, plan.profiled(batches)))
    return (
        tuple(float(fitted.predict(batch.requests)) for batch in batches),
        tuple(measured.samples(batch.name).mean_s for batch in batches),
    )


def _half_width(plan: BucketPlan, measured: Measured, workload: str, of: Predictor) -> float | None:
    """Half the 95 % interval of the error of the sum, by the jackknife over rounds (Tukey 1958); None below 3 rounds.

    Leaving out whole rounds keeps what the interleaving achieved: drift that a round's points share cancels in the
    error, so it does not widen the interval.
    """
    from pytest_npubench.stats.error import case_error, student_quantile

    num_rounds = len(measured.rounds)
    if num_rounds < MIN_JACKKNIFE_ROUNDS:
        return None
    errors = []
    for left_out in range(num_rounds):
        rounds = [row for index, row in enumerate(measured.rounds) if index != left_out]
        errors.append(case_error(*_seconds(plan, replace(measured, rounds=rounds), workload, of)).sum_error)
    standard_error = (num_rounds - 1) / math.sqrt(num_rounds) * stdev(errors)
    return float(student_quantile(0.975, num_rounds - 1)) * standard_error


def _padding(plan: BucketPlan, measured: Measured, workload: str) -> dict[str, float]:
    """By name, of what the engine pads: nothing where it has no buckets."""
    if is_continuous(plan, measured):
        return {}
    prefill, decode = padding_fractions(plan, workload)
    known = {"prefill_padding_fraction": prefill}
    return {**known, "decode_padding_fraction": decode} if plan.service.pads_decode else known


def padding_fractions(plan: BucketPlan, workload: str, num_requests: int = 2000) -> tuple[float, float]:
    """Share of padded positions in prefill, and in decode of single requests, over many requests of the workload."""
    import numpy as np

    from pytest_npubench.core.buckets import bucket_of

    inputs, outputs = many_requests(workload, num_requests, plan.buckets[-1])
    prefilled = bucket_of(plan.buckets, inputs)
    steps = np.repeat(inputs, outputs - 1) + 1 + np.concatenate([np.arange(count - 1) for count in outputs])
    decoded = bucket_of(plan.buckets, steps)
    return 1 - float(inputs.sum() / prefilled.sum()), 1 - float(steps.sum() / decoded.sum()) if len(steps) else 0.0


KIND = PredictionKind()
