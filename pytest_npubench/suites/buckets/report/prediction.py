"""What prediction cases show: predicted against measured, by workload and by batch, rivals beside LENS, and how much
of a workload's work is padding.

Worked example: a case whose sum is 3 % below the measured one while its batches miss by 5 % on average has error -0.03
and gated_error -0.05: it is held to the larger, and the sign is that of the sum.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from pytest_npubench.core.measurement import CostRecord
from pytest_npubench.plain_text import counted
from pytest_npubench.reports import build, number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import (
    BLUE,
    COLORS,
    GREY,
    ORANGE,
    SERIES,
    SYMBOLS,
    DrawnSeries,
    Shape,
    axis,
    category_axis,
    label,
    log_axis,
    percents,
    round_ticks,
)
from pytest_npubench.stats.error import summarise
from pytest_npubench.suites.buckets.kinds.band_coverage import CoverageDetail
from pytest_npubench.suites.buckets.kinds.mean_error import MeanErrorDetail, RivalErrors
from pytest_npubench.suites.buckets.kinds.prediction import PredictionDetail, RivalDetail
from pytest_npubench.suites.buckets.report.profile import cost_words, session
from pytest_npubench.verdict.case_record import CaseRecord

PREDICTION_ERROR = (
    "Prediction error: (predicted - measured) / measured; a case is held to the larger of the error of the sum over "
    "its batches and the mean of the absolute errors of its batches."
)
REPEAT_ERROR = (
    "Repeat error: the relative standard error of the measured mean over the rounds; a prediction error of that size "
    "cannot be told from noise."
)
RIVALS = (
    "Rivals of LENS are fitted on the same profile points and held against the same batches; no case is held to their "
    "errors."
)
BATCHES = "One mark a drawn batch: its measured and its predicted end-to-end time; on the diagonal they agree."

Predictions = Sequence[CaseRecord[PredictionDetail]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedWorkload:
    """A prediction case that was measured: seconds of all its batches together, and the signed relative error."""

    case: CaseRecord[PredictionDetail]
    measured_s: float
    predicted_s: float
    error: float

    @property
    def workload(self) -> str:
        return self.case.detail.workload

    @property
    def gated_error(self) -> float:
        """What the case is held to, with the sign of the sum's error."""
        gate = self.case.detail.gate_error
        return self.error if gate is None else math.copysign(gate, self.error)

    @property
    def interval(self) -> tuple[float, float]:
        return self.case.judgement.error_interval or (self.error, self.error)

    @property
    def repeat_error(self) -> float | None:
        return self.case.judgement.repeat_error

    @property
    def limit(self) -> float | None:
        return self.case.limits.get("case_error")

    @property
    def batches(self) -> tuple[tuple[float, float], ...]:
        """Measured and predicted seconds of each that a logarithmic axis can hold."""
        pairs = zip(self.case.detail.measured_s, self.case.detail.predicted_s, strict=False)
        return tuple((measured, predicted) for measured, predicted in pairs if measured > 0 and predicted > 0)


def judged(cases: Predictions) -> tuple[JudgedWorkload, ...]:
    """The cases that have a measured time are judged; on graphs nothing runs."""
    times = ((case, case.judgement) for case in cases)
    return tuple(
        JudgedWorkload(case=case, measured_s=said.measured_s, predicted_s=said.predicted_s, error=said.error)
        for case, said in times
        if said.measured_s is not None and said.predicted_s is not None and said.error is not None
    )


def common_limit(workloads: Iterable[JudgedWorkload]) -> float | None:
    """The limit these cases were held to; None where it is not said, or where they differ."""
    limits = {item.limit for item in workloads}
    return limits.pop() if len(limits) == 1 else None


def prediction_charts(workloads: Sequence[JudgedWorkload]) -> tuple[Chart | None, ...]:
    return (_error_chart(workloads), _batch_chart(workloads)) if workloads else ()


def error_lines(workloads: Sequence[JudgedWorkload]) -> list[str]:
    """The lines tell the errors of LENS."""
    if not workloads:
        return []
    repeats = [item.repeat_error for item in workloads if item.repeat_error is not None]
    repeated = f"repeat error of the measured side (standard error): mean {sum(repeats) / max(1, len(repeats)):.2%}"
    return [_error_line("LENS", [item.gated_error for item in workloads]), *([repeated] if repeats else [])]


def mean_error_lines(cases: Sequence[CaseRecord[MeanErrorDetail]]) -> list[str]:
    """Returns the mean error over the workloads of all campaigns, with its interval: campaigns are measured one by one,
    so that the squares of their own half widths add up. Worked example: 2.2 % ±1.2 % and 1.2 % ±0.5 % over three
    workloads each are 1.7 % ±0.65 %."""
    means = [
        (case.detail.num_cases, case.detail.mean, case.judgement.error_interval[1] - case.detail.mean)
        for case in cases
        if case.judgement.error_interval is not None
    ]
    if not means or len(means) < len(cases):
        return []
    num_cases = sum(number for number, _, _ in means)
    mean = sum(number * error for number, error, _ in means) / num_cases
    half = math.hypot(*(number * half for number, _, half in means)) / num_cases
    return [f"mean of {num_cases} prediction errors: {mean:.2%} ±{half:.2%} (95 % interval, from the rounds)"]


def coverage_lines(cases: Sequence[CaseRecord[CoverageDetail]]) -> list[str]:
    """Each campaign's line tells how many batches its bands held."""
    return [
        f"{one.coverage:.0%} band of {case.model} at batch size {case.batch_size}: holds {one.num_covered} of "
        f"{one.num_batches} batches, {one.most_misses} may miss it by chance; {one.half_width:.2%} to either side"
        for case in cases
        for one in (case.detail,)
    ]


def rival_lines(cases: Predictions) -> list[str]:
    """Tells of each predictor that was asked for beside LENS its error and its cost, or why it has none."""
    by_name: dict[str, list[tuple[CaseRecord[PredictionDetail], RivalDetail]]] = {}
    for case in cases:
        for name, rival in case.detail.predictors.items():
            by_name.setdefault(rival_title(name, rival), []).append((case, rival))
    lines = [line for name, rivals in by_name.items() for line in _rival_lines(name, rivals)]
    costs = [(case, case.detail.cost) for case in cases if case.detail.cost is not None]
    return [*([_cost_line("LENS with moves", costs)] if lines and costs else []), *lines]


def padding_lines(cases: Predictions) -> list[str]:
    """Each workload once: it depends on lengths and buckets, not on the batch size."""
    waste = {
        case.detail.workload: f"{case.detail.prefill_padding_fraction:.0%} and "
        f"{case.detail.decode_padding_fraction or 0.0:.0%}"
        for case in cases
        if case.detail.prefill_padding_fraction is not None
    }
    said = "; ".join(f"{workload} {shares}" for workload, shares in waste.items())
    return [f"padding waste, prefill and decode: {said}"] if said else []


def _error_line(predictor: str, signed: Sequence[float]) -> str:
    summary = summarise(signed)
    return (
        f"{predictor} prediction error over {counted(summary.num_cases, 'case')}: mean {summary.mean:.2%}, signed "
        f"{summary.signed_mean:+.2%}, median {summary.median:.2%}, p90 {summary.p90:.2%}, max {summary.max:.2%}, "
        f"{summary.under_5_percent_fraction:.0%} under 5 %"
    )


def rival_title(name: str, rival: RivalDetail | RivalErrors) -> str:
    """Titles a rival, with what its figures rest on where that is no measurement."""
    return f"{name} ({rival.basis})" if rival.basis else name


def _rival_lines(name: str, rivals: Sequence[tuple[CaseRecord[PredictionDetail], RivalDetail]]) -> list[str]:
    reasons = Counter(rival.reason for _, rival in rivals if rival.reason is not None)
    lines = [f"{name} predicted nothing in {counted(number, 'case')}: {reason}" for reason, number in reasons.items()]
    errors = [error for _, rival in rivals if (error := _gated(rival)) is not None]
    if not errors:
        return lines
    return [_error_line(name, errors), _cost_line(name, [(case, rival.cost) for case, rival in rivals]), *lines]


def _cost_line(name: str, costs: Sequence[tuple[CaseRecord[PredictionDetail], CostRecord | None]]) -> str:
    """A campaign's cost is that of the case that used most points, or compiled most."""
    widest: dict[object, CostRecord] = {}
    for case, cost in costs:
        if cost is not None and _size(cost) >= _size(widest.get(session(case), cost)):
            widest[session(case)] = cost
    return f"{name} profiling cost: {counted(len(widest), 'session')}, {cost_words(list(widest.values()))}"


def _size(cost: CostRecord) -> tuple[int, int]:
    return cost.points, cost.binaries


def _gated(rival: RivalDetail) -> float | None:
    """Returns the error that a case would be held to, with the sign of the sum's; None where the rival made nothing."""
    if rival.error is None or rival.gate_error is None:
        return rival.error
    return math.copysign(rival.gate_error, rival.error)


def _error_chart(workloads: Sequence[JudgedWorkload]) -> Chart:
    """Returns the error of each workload with its interval, the repeat error and the limit; rivals' errors beside
    it."""
    names, limit = [label(item.workload) for item in workloads], common_limit(workloads)
    errors = percents(item.error for item in workloads)
    ends = [(100 * low, 100 * high) for low, high in (item.interval for item in workloads)]
    span = 110 * max([limit or 0.0, 0.01, *(reach for item in workloads for reach in _reach(item))])
    shown = "" if limit is None else f"; the limit is {limit:.4g} either way"
    rivals = any(item.case.detail.predictors for item in workloads)
    gated, summed = "held to the limit", "error of the sum, 95 % interval"
    return build.chart(
        "Prediction error by workload",
        f"Signed prediction errors of {len(workloads)} workloads, from {min(item.error for item in workloads):+.2%} to "
        f"{max(item.error for item in workloads):+.2%}{shown}.",
        (PREDICTION_ERROR, REPEAT_ERROR, *_limit_note(limit), *((RIVALS,) if rivals else ())),
        [
            _repeat_bars(names, workloads),
            build.marks(
                gated,
                percents(item.gated_error for item in workloads),
                names,
                "{y}: {x:+.2f} %",
                color=ORANGE,
                symbol="diamond-open",
                size=13,
            ),
            build.marks(summed, errors, names, "{y}: {x:+.2f} %", color=BLUE, x_ends=ends),
            *_rival_marks(names, workloads),
        ],
        (axis("prediction error, %", span=(-span, span)), category_axis(names)),
        Table(
            caption="Prediction by workload",
            header=("workload", "measured ms", "predicted ms", "error %", "95 % interval %", "held to %", "± repeat %"),
            rows=tuple(row for item in workloads for row in _error_rows(item)),
        ),
        band=None if limit is None else (-100 * limit, 100 * limit),
    )


def _reach(item: JudgedWorkload) -> tuple[float, ...]:
    """How far from zero each thing drawn for a workload lies."""
    low, high = item.interval
    rivals = (abs(rival.error) for rival in item.case.detail.predictors.values() if rival.error is not None)
    return abs(low), abs(high), abs(item.gated_error), abs(item.repeat_error or 0.0), *rivals


def _repeat_bars(names: list[str], workloads: Sequence[JudgedWorkload]) -> DrawnSeries:
    """Draws bars from minus to plus the repeat error: within it an error is noise."""
    repeats = percents(item.repeat_error or 0.0 for item in workloads)
    return DrawnSeries(name="± repeat error", shape=Shape.SPAN, x=repeats, y=names, color=GREY, opacity=0.35)


def _rival_marks(names: list[str], workloads: Sequence[JudgedWorkload]) -> list[DrawnSeries]:
    """Returns a trace for each rival, over the workloads for which it has an error."""
    errors: dict[str, dict[str, float]] = {}
    for name, item in zip(names, workloads, strict=True):
        for predictor, rival in item.case.detail.predictors.items():
            if rival.error is not None:
                errors.setdefault(rival_title(predictor, rival), {})[name] = rival.error
    return [
        build.marks(
            predictor,
            percents(by_workload.values()),
            list(by_workload),
            "{y}: {x:+.2f} %",
            color=COLORS[-1 - index % 4],
            symbol=SYMBOLS[1 + index % 5],
        )
        for index, (predictor, by_workload) in enumerate(errors.items())
    ]


def _error_rows(item: JudgedWorkload) -> list[tuple[str, ...]]:
    """Returns the workload's row, and one for each rival under the same measured time."""
    measured, interval = number_text.milliseconds(item.measured_s), item.case.judgement.error_interval
    workload_row = (
        item.workload,
        measured,
        number_text.milliseconds(item.predicted_s),
        number_text.percent(item.error, signed=True),
        _interval(interval),
        number_text.percent(item.gated_error, signed=True),
        number_text.percent(item.repeat_error),
    )
    rivals = [
        (
            f"{item.workload}, {rival_title(name, rival)}{f': {rival.reason}' if rival.reason else ''}",
            measured,
            number_text.milliseconds(sum(rival.predicted_s) if rival.predicted_s else None),
            number_text.percent(rival.error, signed=True),
            _interval(_around(rival.error, rival.half_width)),
            number_text.percent(_gated(rival), signed=True),
            number_text.UNKNOWN,
        )
        for name, rival in item.case.detail.predictors.items()
    ]
    return [workload_row, *rivals]


def _around(error: float | None, half: float | None) -> tuple[float, float] | None:
    return None if error is None or half is None else (error - half, error + half)


def _interval(ends: tuple[float, float] | None) -> str:
    return number_text.UNKNOWN if ends is None else " to ".join(number_text.percent(end, signed=True) for end in ends)


def _batch_chart(workloads: Sequence[JudgedWorkload]) -> Chart | None:
    """Every drawn batch: predicted over measured, with the line of equality and the limit around it."""
    workloads = [item for item in workloads if item.batches]
    if not workloads:
        return None
    times_ms = [1e3 * seconds for item in workloads for batch in item.batches for seconds in batch]
    low, high = min(times_ms) / 1.3, max(times_ms) * 1.3
    ticks, span = round_ticks(low, high), (low, high)
    rows = [(item.workload, index, *batch) for item in workloads for index, batch in enumerate(item.batches)]
    limit = common_limit(workloads)
    return build.chart(
        "Predicted and measured by batch",
        f"{len(rows)} batches of {len(workloads)} workloads; nearer to the diagonal is a better prediction.",
        (BATCHES, *_limit_note(limit)),
        [
            *(
                build.marks(
                    item.workload,
                    [1e3 * measured for measured, _ in item.batches],
                    [1e3 * predicted for _, predicted in item.batches],
                    "measured {x:.4g} ms, predicted {y:.4g} ms",
                    color=SERIES[index % len(SERIES)],
                    symbol=SYMBOLS[index % len(SYMBOLS)],
                    size=9,
                )
                for index, item in enumerate(workloads)
            ),
        ],
        (log_axis("measured, ms", ticks, span), log_axis("predicted, ms", ticks, span)),
        build.table(
            "Batches",
            (
                ("workload", lambda row: row[0]),
                ("batch", lambda row: str(row[1])),
                ("measured ms", lambda row: number_text.milliseconds(row[2])),
                ("predicted ms", lambda row: number_text.milliseconds(row[3])),
                ("error %", lambda row: number_text.percent(row[3] / row[2] - 1, signed=True)),
            ),
            rows,
        ),
        diagonal=True,
        wedge=limit if limit is not None and limit < 1 else None,
        answer=_answer([abs(item.error) for item in workloads]),
    )


def _answer(errors: Sequence[float]) -> str:
    workloads = counted(len(errors), "workload")
    return f"LENS is off by {median(errors):.1%} (median of {workloads}, {max(errors):.1%} at worst)"


def _limit_note(limit: float | None) -> tuple[str, ...]:
    return () if limit is None else (f"The green band is the limit, {100 * limit:.4g} % either way.",)
