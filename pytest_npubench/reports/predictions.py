"""What the prediction cases of a campaign say, read once for the table, the charts and the overview.

Worked example: a case whose sum is 3 % below the measured one while its batches miss by 5 % on average has error -0.03
and gated_error -0.05: it is held to the larger, and the sign is that of the sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_npubench.reports.record_fields import Record, finite, kind_of, number, numbers, table, text


@dataclass(frozen=True, slots=True, kw_only=True)
class RivalPrediction:
    """What a predictor beside LENS made of the same batches; error None, with the reason, where it made nothing."""

    predictor: str
    predicted_s: float | None
    error: float | None
    gated_error: float | None
    half_width: float | None
    cost: Record
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPrediction:
    """One prediction case that was measured. Fractions are of the measured time, None where unknown.

    batches holds (measured_s, predicted_s) of each drawn batch; rivals are predictors beside LENS.
    """

    workload: str
    measured_s: float
    predicted_s: float
    error: float
    interval: tuple[float, float] | None
    gated_error: float
    repeat_error: float | None
    limit: float | None
    batches: tuple[tuple[float, float], ...]
    prefill_padding: float | None
    decode_padding: float | None
    num_dropped: float | None
    num_drawn: float | None
    rivals: tuple[RivalPrediction, ...] = ()


def predictions(records: Iterable[Record]) -> tuple[WorkloadPrediction, ...]:
    """Of the prediction cases; those without a measured and a predicted time, which are invalid, are left out."""
    found = (_prediction(record) for record in records if kind_of(record) == "prediction")
    return tuple(item for item in found if item is not None)


def common_limit(found: Iterable[WorkloadPrediction]) -> float | None:
    """The limit these cases were held to; None where it is not said, or where they differ."""
    limits = {item.limit for item in found}
    return limits.pop() if len(limits) == 1 else None


def _prediction(record: Record) -> WorkloadPrediction | None:
    detail = table(record, "detail")
    measured_s, predicted_s, error = (number(record, name) for name in ("measured_s", "predicted_s", "error"))
    if measured_s is None or predicted_s is None or error is None:
        return None
    pairs = zip(numbers(detail, "measured_s"), numbers(detail, "predicted_s"), strict=False)
    return WorkloadPrediction(
        workload=text(detail, "workload") or text(record, "id"),
        measured_s=measured_s,
        predicted_s=predicted_s,
        error=error,
        interval=_interval(record),
        gated_error=_gated(detail, error),
        repeat_error=number(record, "repeat_error"),
        limit=number(table(record, "limits"), "case_error"),
        batches=tuple((measured, predicted) for measured, predicted in pairs if measured > 0 and predicted > 0),
        prefill_padding=number(detail, "prefill_padding_fraction"),
        decode_padding=number(detail, "decode_padding_fraction"),
        num_dropped=number(detail, "num_dropped"),
        num_drawn=number(detail, "num_drawn"),
        rivals=tuple(_rival(name, table(detail, "predictors")) for name in table(detail, "predictors")),
    )


def _rival(name: str, of: Record) -> RivalPrediction:
    detail = table(of, name)
    error, predicted_s = number(detail, "error"), numbers(detail, "predicted_s")
    return RivalPrediction(
        predictor=name,
        predicted_s=sum(predicted_s) if predicted_s else None,
        error=error,
        gated_error=None if error is None else _gated(detail, error),
        half_width=number(detail, "half_width"),
        cost=table(detail, "cost"),
        reason=text(detail, "reason"),
    )


def _gated(detail: Record, error: float) -> float:
    """What a case is held to, with the sign of the sum's error."""
    gate = number(detail, "gate_error")
    return error if gate is None else -gate if error < 0 else gate


def _interval(record: Record) -> tuple[float, float] | None:
    ends = finite(record.get("error_interval"))
    return (ends[0], ends[1]) if len(ends) == 2 else None
