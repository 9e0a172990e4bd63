"""LENS against the measured end-to-end time of batches drawn from a workload (LENS, section 5.2).

The prediction comes from the profile points alone; the batches it is judged on are other samples of the same rounds.
The error of a case is the larger of |sum P - sum M| / sum M and the mean of |P - M| / M over its batches. It is known
within an interval, by the jackknife over rounds, and a case whose interval says neither is inconclusive (verdict.Gate).

What LENS computes is held to what is known exactly, so that its arithmetic fails without a baseline and however noisy
the device is: the prefills and decode steps that it counts for a drawn batch to those that the engine ran, and what it
predicts of the profile points to these points, two a bucket for two unknowns.

Rivals that a run asks for (--npubench-predictors) are fitted on the same profile points and held against the same
batches; their errors stand beside LENS's, and no case is held to them.

Where the engine has no buckets (vLLM on a CPU) those of the plan are nominal: lengths at which a slope is measured, and
LENS interpolates between them (predictors/ragged.py). The limit is the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.visits import Round
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import CostRecord, Phase
from pytest_npubench.engines.canary_kernels import KERNELS
from pytest_npubench.errors import NpubenchError
from pytest_npubench.predictors import available, predictor
from pytest_npubench.suites.buckets.active import is_settled
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.kinds.canary import canary_points
from pytest_npubench.suites.buckets.plan import BucketPlan, is_continuous, nominal_words
from pytest_npubench.suites.buckets.points import BucketPoint, ran_in
from pytest_npubench.suites.buckets.sampling import many_requests
from pytest_npubench.verdict import Gate, Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.predictors.protocol import Predictor, ProfileSamples
    from pytest_npubench.stats.error import CaseError

SETTLED_HALF_WIDTH = 0.01
ROUNDING = 1e-9
BESIDE_VISIT_S = 0.1
TRACE_VISIT_S = 0.0  # once a round: a trace takes 50 ms to read, however short the step

RivalT = TypeVar("RivalT")


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionError:
    """Predicted and measured seconds of a workload's batches. left_out: the error without each of the rounds."""

    predicted_s: tuple[float, ...]
    measured_s: tuple[float, ...]
    error: CaseError
    left_out: tuple[CaseError, ...]
    repeat_error: float | None

    @property
    def half_width(self) -> float | None:
        """Returns the half width of the 95 % interval of the error of the sum."""
        from pytest_npubench.stats.error import jackknife_half_width

        return jackknife_half_width([one.sum_error for one in self.left_out])


def gate_interval(errors: Sequence[PredictionError]) -> tuple[float, float] | None:
    """Returns the 95 % interval of the mean of what these cases of one campaign are held to, by the jackknife over the
    rounds that they share; None where these are too few. What noise alone adds to absolute values is off its lower
    end."""
    from pytest_npubench.stats.error import jackknife_half_width, noise_in_gate

    without = zip(*(item.left_out for item in errors), strict=True)
    half = jackknife_half_width([fmean(error.gate_value for error in left_out) for left_out in without])
    if half is None:
        return None
    mean = fmean(item.error.gate_value for item in errors)
    noise = fmean(noise_in_gate(item.error, item.left_out) for item in errors)
    return max(0.0, mean - noise - half), mean + half


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


def _beside(plan: BucketPlan, buckets: Sequence[int]) -> tuple[BucketPoint, ...]:
    """What the rivals of a run measure beside LENS's points of these buckets; one that cannot be had needs nothing."""
    if not plan.rivals:
        return ()
    rivals = available(plan.rivals)
    depths = {depth for rival in rivals for depth in rival.depths} if plan.service.compares_engines else ()
    parts = dict.fromkeys(part for rival in rivals for part in rival.parts(buckets))
    return (
        *(
            replace(plan.shallow(depth).of(plan.profile_point(point)), beside=True, visit_s=BESIDE_VISIT_S)
            for depth in sorted(depths)
            for point in plan.profile_points(buckets)
        ),
        *(canary_points(*KERNELS, beside=True) if any(rival.needs_canaries for rival in rivals) else ()),
        *(
            BucketPoint(
                name=part.name, part=part, beside=True, visit_s=BESIDE_VISIT_S if part.operator else TRACE_VISIT_S
            )
            for part in parts
        ),
    )


class PredictionKind(BucketKind):
    name = "prediction"
    axis = "workload"

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        batches = plan.draws(str(case.axis("workload")))
        buckets = plan.profiled(batches)
        profiled = tuple(plan.profile_point(point) for point in plan.profile_points(buckets))
        return (*profiled, *plan.moves(buckets[1:]), *batches, *_beside(plan, buckets))

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        from pytest_npubench.predictors.lens import PREDICTOR as LENS

        workload = str(case.axis("workload"))
        prediction = prediction_error(plan, measured, workload)
        error, half = prediction.error, prediction.half_width
        total_s = sum(prediction.measured_s)
        rounds = zip(*(measured.round_means_s(point.name) for point in plan.draws(workload)), strict=False)
        gate = Gate(
            metric="prediction error",
            value=error.gate_value,
            limit=plan.case_error,
            unit="%",
            interval=gate_interval([prediction]),
        )
        padding, sample = _padding(plan, measured, workload), plan.sample(workload)
        continuous = is_continuous(plan, measured)
        return Judgement(
            verdict=explained(
                judge_gates((gate, *arithmetic(plan, measured, workload))),
                prediction.repeat_error,
                nominal_words(plan) if continuous else "",
            ),
            what=f"E2E of {len(prediction.measured_s)} batches",
            metrics=(
                Metric(name="e2e_s", unit="s", value=total_s, samples=tuple(sum(row) for row in rounds)),
                Metric(name="prediction_error", unit="", value=error.gate_value, gate="difference"),
                *(Metric(name=name, unit="", value=fraction, gate="none") for name, fraction in padding.items()),
            ),
            measured_s=total_s,
            predicted_s=sum(prediction.predicted_s),
            error=error.sum_error,
            error_interval=None if half is None else (error.sum_error - half, error.sum_error + half),
            repeat_error=prediction.repeat_error,
            detail=PredictionDetail(
                workload=workload,
                predicted_s=prediction.predicted_s,
                measured_s=prediction.measured_s,
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


def explained(verdict: Verdict, repeat: float | None, nominal: str) -> Verdict:
    """Explains an error that is not within its limit by how well the measured side repeats, so that noise is not taken
    for a wrong model, and a nominal bucket not for a real one."""
    parts = [*([] if repeat is None else [f"repeat error {repeat:.1%}"]), *([nominal] if nominal else [])]
    if verdict.kind is VerdictKind.PASSED or not parts:
        return verdict
    return replace(verdict, reason=f"{verdict.reason} ({'; '.join(parts)})")


def beside(
    rivals: Sequence[str], figures: Callable[[Predictor], RivalT], failed: Callable[[str], RivalT]
) -> dict[str, RivalT]:
    """What a case says of rivals, each by its figures or by the reason why it has none."""
    by_name: dict[str, RivalT] = {}
    for name in rivals:
        try:
            by_name[name] = figures(predictor(name))
        except Exception as error:  # noqa: BLE001 - whatever a rival raises, it is no matter of the case
            by_name[name] = failed(
                str(error) if isinstance(error, NpubenchError) else f"{type(error).__name__}: {error}"
            )
    return by_name


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
    scatter_s = [error * mean for error, mean in zip(repeats, measured_s, strict=True) if error is not None]
    return PredictionError(
        predicted_s=predicted_s,
        measured_s=measured_s,
        error=case_error(predicted_s, measured_s),
        left_out=tuple(
            case_error(*_seconds(plan, replace(measured, rounds=rounds), workload, of))
            for rounds in _left_out(measured.rounds)
        ),
        repeat_error=math.hypot(*scatter_s) / sum(measured_s) if len(scatter_s) == len(repeats) else None,
    )


def _rival_detail(plan: BucketPlan, measured: Measured, workload: str, rival: Predictor) -> RivalDetail:
    prediction = prediction_error(plan, measured, workload, rival)
    return RivalDetail(
        predicted_s=prediction.predicted_s,
        error=prediction.error.sum_error,
        mape=prediction.error.mape,
        gate_error=prediction.error.gate_value,
        half_width=prediction.half_width,
        cost=_cost(plan, measured, workload, rival),
        basis=rival.basis,
    )


def _cost(plan: BucketPlan, measured: Measured, workload: str, of: Predictor) -> CostRecord:
    return of.cost(_samples(plan, measured, plan.draws(workload)))


def _samples(plan: BucketPlan, measured: Measured, batches: Sequence[BucketPoint]) -> ProfileSamples:
    """What predictors of these batches are fitted on."""
    from pytest_npubench.suites.buckets.profile_samples import profile_samples
    from pytest_npubench.suites.buckets.transfer import profile_transfer

    samples = profile_samples(plan, measured, plan.profiled(batches))
    if not plan.rivals:
        return samples
    transfer, why_not = profile_transfer(plan, samples)
    return replace(samples, transfer=transfer, why_no_transfer=why_not)


def _seconds(
    plan: BucketPlan, measured: Measured, workload: str, of: Predictor
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Predicted and measured seconds of each of the workload's batches."""
    batches = plan.draws(workload)
    fitted = of.fit(_samples(plan, measured, batches))
    return (
        tuple(float(fitted.predict(batch.requests)) for batch in batches),
        tuple(measured.samples(batch.name).mean_s for batch in batches),
    )


def _left_out(rounds: Sequence[Round]) -> list[list[Round]]:
    """Returns the others, for each of the rounds; nothing where these would be too few for an interval."""
    from pytest_npubench.stats.error import MIN_JACKKNIFE_ROUNDS

    if len(rounds) < MIN_JACKKNIFE_ROUNDS:
        return []
    return [[*rounds[:index], *rounds[index + 1 :]] for index in range(len(rounds))]


def arithmetic(plan: BucketPlan, measured: Measured, workload: str) -> tuple[Gate, ...]:
    """What LENS computes against what is exact; nothing where lengths are not padded, so that it interpolates."""
    from pytest_npubench.predictors.lens import PREDICTOR as LENS
    from pytest_npubench.suites.buckets.profile_samples import profile_samples

    if is_continuous(plan, measured):
        return ()
    batches = plan.draws(workload)
    samples = profile_samples(plan, measured, plan.profiled(batches))
    fitted = LENS.fit_padded(samples)
    wrong = [
        point
        for point, own in samples.samples_s.items()
        if not math.isclose(fitted.predict(plan.profile_point(point).requests), fmean(own), rel_tol=ROUNDING)
    ]
    gates = [Gate(metric="profile points that LENS does not give back", value=len(wrong), limit=0)]
    rounds = (*measured.rounds, *measured.disturbed_rounds)  # counts stand in the first round that has them
    ran = {batch: _by_phase(plan, ran_in(rounds, batch.name)) for batch in batches}
    if any(ran.values()):
        num = sum(_num_apart(_by_phase(plan, fitted.counts(batch.requests)), own) for batch, own in ran.items())
        gates.append(Gate(metric="prefills and steps that LENS counts and the engine does not run", value=num, limit=0))
    return tuple(gates)


def _by_phase(plan: BucketPlan, counts: Mapping[str, float]) -> dict[str, float]:
    """Prefills and decode steps by bucket, or in all where the engine's buckets are its own; no prefills where a batch
    has one, which some engines count as its prompts."""
    service, by_phase = plan.service, Counter[str]()
    for phase in (Phase.DECODE,) if service.prefill_shared else Phase:
        by_bucket = phase in service.pure_phases and not service.pads_as_it_will
        for name, number in counts.items():
            if name.startswith(f"{phase.value}-"):
                by_phase[name if by_bucket else phase.value] += number  # type: ignore[assignment]
    return dict(by_phase)


def _num_apart(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    return sum(abs(left.get(name, 0.0) - right.get(name, 0.0)) for name in left.keys() | right.keys())


def _padding(plan: BucketPlan, measured: Measured, workload: str) -> dict[str, float]:
    """Names what the engine pads: nothing where it has no buckets."""
    if is_continuous(plan, measured):
        return {}
    prefill, decode = padding_fractions(plan, workload)
    padding = {"prefill_padding_fraction": prefill}
    return {**padding, "decode_padding_fraction": decode} if plan.service.pads_decode else padding


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
