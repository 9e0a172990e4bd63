"""Time by tokens of one unit alone, a line for each operator: GPU-1, NPU-1, and what a graph for a new length costs.

What was fitted is told in words below each chart, "none found" where the samples do not show it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_npubench.extensions.pairs.suites.partition.kinds.gpu_linear import GpuLinearDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.graph_generation import GraphGenerationDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_stage import NpuStageDetail
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, line, marks, plain, series_table
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import COLORS, GREY, Axis, DrawnSeries, axis, log_axis, spread_axis
from pytest_npubench.reports.reported import HETERO_INFER, note, reported
from pytest_npubench.verdict.case_record import CaseRecord, DetailT

GPU_TIME = (
    "One operator on the unit of dynamic shapes alone, median over the rounds. GPU-1: the time is flat up to a "
    "threshold (diamond) and linear past it; one is told only where it explains the times better than a straight line."
)
GPU_RATE = "The same times as a rate: 2 x rows x columns x tokens, over the seconds."
NPU_STAGE = (
    "One operator on the unit of static shapes alone, with a graph for each length, median over the rounds. NPU-1: the "
    "time goes up in stages; a width (dotted) is told only where it explains the times better than a straight line."
)
GRAPHS = (
    "Cold compile of a graph for a length that none exists for, a fresh one in every round. A growth with the size of "
    "the output is told only where it is above 0 at one false alarm in 1,000."
)
MAX_STAGES = 40
NONE_FOUND = "none found"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCurve:
    """The values of one operator at its token counts, in the chart's unit."""

    operator: str
    tokens: tuple[int, ...]
    values: tuple[float, ...]


def gpu_charts(records: Sequence[CaseRecord[GpuLinearDetail]]) -> tuple[Chart, ...]:
    """GPU-1 as time and as rate."""
    if not records:
        return ()
    times = [_curve(record, record.detail.tokens, record.detail.seconds, 1e3) for record in records]
    rates = [_curve(record, record.detail.tokens, record.detail.flops_per_s, 1e-9) for record in records]
    thresholds = [record.detail.threshold_tokens for record in records]
    words = [NONE_FOUND if value is None else f"{plain(value)} tokens" for value in thresholds]
    what, rate = "Time on the unit of dynamic shapes", "Rate on the unit of dynamic shapes"
    return (
        chart(
            "GPU-1: time by tokens",
            _summary(what, times, "ms"),
            (GPU_TIME, _told("Fitted threshold", times, words)),
            [*_lines(times, "ms"), _threshold_marks(records)],
            (_token_axis(times), spread_axis("ms", _values(times))),
            _table(what, times, "ms", ("fitted threshold", *words)),
        ),
        chart(
            "GPU-1: FLOP/s by tokens",
            _summary(rate, rates, "GFLOP/s"),
            (GPU_RATE,),
            _lines(rates, "GFLOP/s"),
            (_token_axis(rates), spread_axis("GFLOP/s", _values(rates))),
            _table(rate, rates, "GFLOP/s"),
        ),
    )


def stage_chart(records: Sequence[CaseRecord[NpuStageDetail]]) -> Chart | None:
    """NPU-1."""
    if not records:
        return None
    found = [_curve(record, record.detail.tokens, record.detail.seconds, 1e3) for record in records]
    widths = [record.detail.stage_tokens for record in records]
    words = [
        NONE_FOUND if width is None else f"{plain(width)} tokens, {plain(record.detail.step_s * 1e3)} ms each"
        for record, width in zip(records, widths, strict=True)
    ]
    what = "Time on the unit of static shapes"
    width = reported("figure 3", "value", paper=HETERO_INFER, characteristic="stage_width")
    theirs = note("figure 3", f"stages {width} wide", paper=HETERO_INFER)
    return chart(
        "NPU-1: time by tokens",
        _summary(what, found, "ms"),
        (NPU_STAGE, _told("Stage width", found, words), theirs),
        _lines(found, "ms"),
        (axis("tokens", from_zero=True), spread_axis("ms", _values(found))),
        _table(what, found, "ms", ("stage width", *words)),
        verticals=_stages(found, widths),
    )


def graph_chart(records: Sequence[CaseRecord[GraphGenerationDetail]]) -> Chart | None:
    if not records:
        return None
    found = [_curve(record, record.detail.tokens, record.detail.seconds, 1e3) for record in records]
    slopes = [record.detail.slope_s_per_output for record in records]
    words = [NONE_FOUND if slope is None else f"{plain(slope * 1e9)} ms for each million outputs" for slope in slopes]
    printed = [
        f"{reported('figure 14 preparation', 'generation', paper=HETERO_INFER, tokens=tokens)} ms at {tokens:,} tokens"
        for tokens in (135, 1000)
    ]
    theirs = note("figure 14 preparation", f"all graphs of the model, {', '.join(printed)}", paper=HETERO_INFER)
    return chart(
        "Graph generation by tokens",
        _summary("Compile time", found, "ms"),
        (GRAPHS, _told("Growth", found, words), theirs),
        _lines(found, "ms"),
        (axis("tokens", from_zero=True), axis("compiling, ms", from_zero=True)),
        _table("Graph generation", found, "ms", ("growth", *words)),
    )


def operator_of(record: CaseRecord[DetailT]) -> str:
    return record.axis("operator") or record.id


def _curve(
    record: CaseRecord[DetailT], tokens: tuple[int, ...], values: Sequence[float], factor: float
) -> OperatorCurve:
    return OperatorCurve(operator=operator_of(record), tokens=tokens, values=tuple(value * factor for value in values))


def _lines(found: Sequence[OperatorCurve], unit: str) -> list[DrawnSeries]:
    return [
        line(curve.operator, curve.tokens, curve.values, f"{{x}} tokens: {{y:.4g}} {unit}", place=place, size=7)
        for place, curve in enumerate(found)
    ]


def _values(found: Sequence[OperatorCurve]) -> list[float]:
    return [value for curve in found for value in curve.values]


def _tokens(found: Sequence[OperatorCurve]) -> list[int]:
    return sorted({tokens for curve in found for tokens in curve.tokens})


def _token_axis(found: Sequence[OperatorCurve]) -> Axis:
    return log_axis("tokens", _tokens(found))


def _table(caption: str, found: Sequence[OperatorCurve], unit: str, last: tuple[str, ...] = ()) -> Table:
    """A row for each number of tokens, a column for each operator; `last` is a row more."""
    tokens = _tokens(found)
    own = {curve.operator: dict(zip(curve.tokens, curve.values, strict=True)) for curve in found}
    series = {f"{name} {unit}": [plain(values.get(count)) for count in tokens] for name, values in own.items()}
    return series_table(caption, "tokens", list(map(number_text.count, tokens)), series, last=(last,) if last else ())


def _threshold_marks(records: Sequence[CaseRecord[GpuLinearDetail]]) -> DrawnSeries:
    """A diamond where each fitted line bends."""
    bends = [
        (record.detail.threshold_tokens, record.detail.floor_s * 1e3, COLORS[place % len(COLORS)])
        for place, record in enumerate(records)
        if record.detail.threshold_tokens is not None
    ]
    return marks(
        "fitted threshold",
        [threshold for threshold, _, _ in bends],
        [floor_ms for _, floor_ms, _ in bends],
        "bends at {x:.4g} tokens",
        color=GREY,
        colors=[color for _, _, color in bends],
        symbol="diamond-open",
        size=13,
    )


def _stages(found: Sequence[OperatorCurve], widths: Sequence[int | None]) -> list[int]:
    """The edges of stages, where all operators that have stages agree on their width."""
    known = {width for width in widths if width is not None}
    width = known.pop() if len(known) == 1 else 0
    longest = max(max(curve.tokens) for curve in found)
    if width < 1 or longest / width > MAX_STAGES:
        return []
    return [width * stage for stage in range(1, math.floor(longest / width) + 1)]


def _told(name: str, found: Sequence[OperatorCurve], words: Sequence[str]) -> str:
    """In words what was fitted to each operator, once where all have the same."""
    if len(set(words)) == 1:
        return f"{name}: {words[0]}{' for any operator' if words[0] == NONE_FOUND else ''}."
    return f"{name}: {'; '.join(f'{curve.operator} {word}' for curve, word in zip(found, words, strict=True))}."


def _summary(what: str, found: Sequence[OperatorCurve], unit: str) -> str:
    ends = (
        f"{curve.operator} {plain(curve.values[0])} {unit} at {number_text.count(curve.tokens[0])} tokens, "
        f"{plain(curve.values[-1])} {unit} at {number_text.count(curve.tokens[-1])}"
        for curve in found
    )
    return f"{what}: {'; '.join(ends)}."
