"""Time by tokens of one unit alone, a line for each operator: GPU-1, NPU-1, and what a graph for a new length costs.

What was fitted is told in words below each chart, "none found" where the samples do not show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.pair_cells import of_kind, operator_of, plain, scaled
from pytest_npubench.reports.plot_parts import (
    COLORS,
    SYMBOLS,
    Part,
    axis,
    label,
    layout,
    log_axis,
    spread_axis,
    vertical_lines,
)
from pytest_npubench.reports.record_fields import Record, as_number, number, numbers, table
from pytest_npubench.reports.reported import HETERO_INFER, conditions, reported
from pytest_npubench.reports.reported import label as reported_label
from pytest_npubench.suites.partition.report import notes as partition_notes

MAX_STAGES = 40
NONE_FOUND = "none found"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCurve:
    """The values of one operator at its token counts, both above 0; detail is that of its case."""

    operator: str
    detail: Record
    tokens: tuple[float, ...]
    values: tuple[float, ...]


def unit_charts(records: Sequence[Record]) -> list[Chart]:
    """Those that there are cases for."""
    charts = (gpu_time_chart(records), gpu_rate_chart(records), stage_chart(records), graph_chart(records))
    return [chart for chart in charts if chart is not None]


def gpu_time_chart(records: Iterable[Record]) -> Chart | None:
    found = curves(records, "gpu_linear", "seconds", 1e3)
    if not found:
        return None
    thresholds = [number(curve.detail, "threshold_tokens") for curve in found]
    words = [NONE_FOUND if value is None else f"{plain(value)} tokens" for value in thresholds]
    data = [*lines(found, "ms"), _threshold_marks(found, thresholds)]
    return Chart(
        title="GPU-1: time by tokens",
        summary=_summary("Time on the unit of dynamic shapes", found, "ms"),
        notes=(partition_notes.GPU_TIME, _told("Fitted threshold", found, words)),
        figure={"data": data, "layout": layout(token_axis(found), spread_axis("ms", values_of(found)))},
        table=curve_table("Time on the unit of dynamic shapes", found, "ms", ("fitted threshold", *words)),
    )


def gpu_rate_chart(records: Iterable[Record]) -> Chart | None:
    found = curves(records, "gpu_linear", "flops_per_s", 1e-9)
    if not found:
        return None
    return Chart(
        title="GPU-1: FLOP/s by tokens",
        summary=_summary("Rate on the unit of dynamic shapes", found, "GFLOP/s"),
        notes=(partition_notes.GPU_RATE,),
        figure={
            "data": lines(found, "GFLOP/s"),
            "layout": layout(token_axis(found), spread_axis("GFLOP/s", values_of(found))),
        },
        table=curve_table("Rate on the unit of dynamic shapes", found, "GFLOP/s"),
    )


def stage_chart(records: Iterable[Record]) -> Chart | None:
    found = curves(records, "npu_stage", "seconds", 1e3)
    if not found:
        return None
    widths = [number(curve.detail, "stage_tokens") for curve in found]
    words = [
        NONE_FOUND if width is None else f"{plain(width)} tokens, {plain(scaled(curve.detail, 'step_s', 1e3))} ms each"
        for curve, width in zip(found, widths, strict=True)
    ]
    width = reported("figure 3", "value", paper=HETERO_INFER, characteristic="stage_width")
    theirs = reported_label(conditions("figure 3", paper=HETERO_INFER), f"stages {width} wide", paper=HETERO_INFER)
    return Chart(
        title="NPU-1: time by tokens",
        summary=_summary("Time on the unit of static shapes", found, "ms"),
        notes=(partition_notes.NPU_STAGE, _told("Stage width", found, words), theirs),
        figure={
            "data": lines(found, "ms"),
            "layout": layout(
                axis("tokens", rangemode="tozero"),
                spread_axis("ms", values_of(found)),
                shapes=vertical_lines(_stages(found, widths)),
            ),
        },
        table=curve_table("Time on the unit of static shapes", found, "ms", ("stage width", *words)),
    )


def graph_chart(records: Iterable[Record]) -> Chart | None:
    found = curves(records, "graph_generation", "seconds", 1e3)
    if not found:
        return None
    slopes = [scaled(curve.detail, "slope_s_per_output", 1e9) for curve in found]
    words = [NONE_FOUND if slope is None else f"{plain(slope)} ms for each million outputs" for slope in slopes]
    printed = [
        f"{reported('figure 14 preparation', 'generation', paper=HETERO_INFER, tokens=tokens)} ms at {tokens:,} tokens"
        for tokens in (135, 1000)
    ]
    theirs = reported_label(
        conditions("figure 14 preparation", paper=HETERO_INFER),
        f"all graphs of the model, {', '.join(printed)}",
        paper=HETERO_INFER,
    )
    return Chart(
        title="Graph generation by tokens",
        summary=_summary("Compile time", found, "ms"),
        notes=(partition_notes.GRAPHS, _told("Growth", found, words), theirs),
        figure={
            "data": lines(found, "ms"),
            "layout": layout(axis("tokens", rangemode="tozero"), axis("compiling, ms", rangemode="tozero")),
        },
        table=curve_table("Graph generation", found, "ms", ("growth", *words)),
    )


def curves(records: Iterable[Record], kind: str, column: str, factor: float) -> list[OperatorCurve]:
    """One for each case of that kind whose `column`, times the factor, fits its token counts."""
    found = []
    for record in of_kind(records, kind):
        detail = table(record, "detail")
        tokens = numbers(detail, "tokens")
        values = [as_number(value * factor) for value in numbers(detail, column)]
        known = tuple(value for value in values if value is not None)
        if tokens and len(tokens) == len(known) and min((*tokens, *known)) > 0:
            found.append(OperatorCurve(operator=operator_of(record), detail=detail, tokens=tokens, values=known))
    return found


def lines(found: Sequence[OperatorCurve], unit: str) -> list[Part]:
    return [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": label(curve.operator),
            "x": list(curve.tokens),
            "y": list(curve.values),
            "line": {"color": COLORS[place % len(COLORS)], "width": 1.5},
            "marker": {"color": COLORS[place % len(COLORS)], "symbol": SYMBOLS[place % len(SYMBOLS)], "size": 7},
            "hovertemplate": f"%{{x}} tokens: %{{y:.4g}} {unit}",
        }
        for place, curve in enumerate(found)
    ]


def values_of(found: Iterable[OperatorCurve]) -> list[float]:
    return [value for curve in found for value in curve.values]


def token_axis(found: Iterable[OperatorCurve]) -> Part:
    return log_axis("tokens", sorted({tokens for curve in found for tokens in curve.tokens}))


def curve_table(caption: str, found: Sequence[OperatorCurve], unit: str, last: tuple[str, ...] = ()) -> Table:
    """A row for each number of tokens, a column for each operator; `last` is a row more."""
    values = [dict(zip(curve.tokens, curve.values, strict=True)) for curve in found]
    rows = (
        (number_text.count(tokens), *(plain(own.get(tokens)) for own in values))
        for tokens in sorted({tokens for own in values for tokens in own})
    )
    return Table(
        caption=caption,
        header=("tokens", *(f"{curve.operator} {unit}" for curve in found)),
        rows=(*rows, *((last,) if last else ())),
    )


def _threshold_marks(found: Sequence[OperatorCurve], thresholds: Sequence[float | None]) -> Part:
    """A diamond where each fitted line bends."""
    bends = [
        (threshold, floor_ms, COLORS[place % len(COLORS)])
        for place, (curve, threshold) in enumerate(zip(found, thresholds, strict=True))
        if threshold is not None and threshold > 0 and (floor_ms := scaled(curve.detail, "floor_s", 1e3)) is not None
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "fitted threshold",
        "showlegend": bool(bends),
        "x": [threshold for threshold, _, _ in bends],
        "y": [floor_ms for _, floor_ms, _ in bends],
        "marker": {
            "color": [color for _, _, color in bends],
            "symbol": "diamond-open",
            "size": 13,
            "line": {"width": 2},
        },
        "hovertemplate": "bends at %{x:.4g} tokens",
    }


def _stages(found: Sequence[OperatorCurve], widths: Sequence[float | None]) -> list[float]:
    """The edges of stages, where all operators that have stages agree on their width."""
    known = {width for width in widths if width is not None}
    width = known.pop() if len(known) == 1 else 0.0
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
