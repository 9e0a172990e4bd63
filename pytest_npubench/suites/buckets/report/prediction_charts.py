"""Predicted against measured, by workload and by batch, and how much of a workload's work is padding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import (
    BAND,
    BLUE,
    COLORS,
    GREEN,
    GREY,
    NOISE,
    ORANGE,
    SERIES,
    SYMBOLS,
    Part,
    axis,
    category_axis,
    label,
    layout,
    log_axis,
    percents,
    round_ticks,
    vertical_band,
)
from pytest_npubench.reports.predictions import RivalPrediction, WorkloadPrediction, common_limit

Predictions = Sequence[WorkloadPrediction]


def error_chart(found: Predictions) -> Chart:
    """The error of each workload with its interval, the repeat error and the limit; rivals' errors beside it."""
    names, limit = [label(item.workload) for item in found], common_limit(found)
    span = 110 * max([limit or 0.0, 0.01, *(reach for item in found for reach in _reach(item))])
    shown = "" if limit is None else f"; the limit is {limit:.4g} either way"
    return Chart(
        title="Prediction error by workload",
        summary=f"Signed prediction errors of {len(found)} workloads, from {min(item.error for item in found):+.2%} to "
        f"{max(item.error for item in found):+.2%}{shown}.",
        notes=(definitions.PREDICTION_ERROR, definitions.REPEAT_ERROR, *_limit_note(limit), *_rival_notes(found)),
        figure={
            "data": [
                _repeat_bars(names, found),
                _gated_marks(names, found),
                _error_marks(names, found),
                *_rival_marks(names, found),
            ],
            "layout": layout(
                axis("prediction error, %", zeroline=True, range=[-span, span]),
                category_axis(names),
                shapes=[] if limit is None else [vertical_band(-100 * limit, 100 * limit)],
            ),
        },
        table=Table(
            caption="Prediction by workload",
            header=("workload", "measured ms", "predicted ms", "error %", "95 % interval %", "held to %", "± repeat %"),
            rows=tuple(row for item in found for row in (_error_row(item), *map(_rival_row(item), item.rivals))),
        ),
        rows=len(found),
    )


def batch_chart(found: Predictions) -> Chart | None:
    """Every drawn batch: predicted over measured, with the line of equality and the limit around it."""
    found = [item for item in found if item.batches]
    if not found:
        return None
    times_ms = [1e3 * seconds for item in found for batch in item.batches for seconds in batch]
    low, high = min(times_ms) / 1.3, max(times_ms) * 1.3
    ticks, span = round_ticks(low, high), [math.log10(low), math.log10(high)]
    rows = tuple(_batch_row(item, index) for item in found for index in range(len(item.batches)))
    return Chart(
        title="Predicted and measured by batch",
        summary=f"{len(rows)} batches of {len(found)} workloads; nearer to the diagonal is a better prediction.",
        notes=(definitions.BATCHES, *_limit_note(common_limit(found))),
        figure={
            "data": [
                *_equality(low, high, common_limit(found)),
                *(_batch_marks(i, item) for i, item in enumerate(found)),
            ],
            "layout": layout(
                log_axis("measured, ms", ticks, range=span),
                log_axis("predicted, ms", ticks, range=span),
            ),
        },
        table=Table(
            caption="Batches", header=("workload", "batch", "measured ms", "predicted ms", "error %"), rows=rows
        ),
    )


def padding_chart(found: Predictions) -> Chart | None:
    """Padding fractions of prefill and decode by workload; the table says how many requests no bucket held."""
    found = [item for item in found if item.prefill_padding is not None or item.decode_padding is not None]
    if not found:
        return None
    names = [label(item.workload) for item in found]
    prefill = _padding_bars("prefill", names, [item.prefill_padding for item in found], {"color": BLUE})
    hatched = {"color": ORANGE, "pattern": {"shape": "/", "size": 6, "solidity": 0.35}}
    return Chart(
        title="Padding waste by workload",
        summary=f"Share of padding in prefill and in decode of {len(found)} workloads.",
        notes=(definitions.PREFILL_PADDING, definitions.DECODE_PADDING, definitions.DROPPED),
        figure={
            "data": [prefill, _padding_bars("decode", names, [item.decode_padding for item in found], hatched)],
            "layout": layout(axis("padding, %", range=[0, 100]), category_axis(names), barmode="group"),
        },
        table=Table(
            caption="Padding and dropped requests",
            header=("workload", "prefill padding %", "decode padding %", "dropped", "of drawn"),
            rows=tuple(map(_padding_row, found)),
        ),
        rows=len(found),
    )


def _reach(item: WorkloadPrediction) -> tuple[float, ...]:
    """How far from zero each thing drawn for a workload lies."""
    low, high = item.interval or (item.error, item.error)
    rivals = (abs(rival.error) for rival in item.rivals if rival.error is not None)
    return abs(low), abs(high), abs(item.gated_error), abs(item.repeat_error or 0.0), *rivals


def _repeat_bars(names: list[str], found: Predictions) -> Part:
    """From minus to plus the repeat error: within it an error is noise."""
    repeats = [100 * (item.repeat_error or 0.0) for item in found]
    return {
        "type": "bar",
        "orientation": "h",
        "name": "± repeat error",
        "y": names,
        "x": [2 * repeat for repeat in repeats],
        "base": [-repeat for repeat in repeats],
        "width": 0.5,
        "marker": {"color": NOISE},
        "hoverinfo": "skip",
    }


def _gated_marks(names: list[str], found: Predictions) -> Part:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "held to the limit",
        "y": names,
        "x": percents(item.gated_error for item in found),
        "marker": {"color": ORANGE, "symbol": "diamond-open", "size": 13, "line": {"width": 2}},
        "hovertemplate": "%{y}: %{x:+.2f} %<extra>held to the limit</extra>",
    }


def _error_marks(names: list[str], found: Predictions) -> Part:
    ends = [item.interval or (item.error, item.error) for item in found]
    above = percents(max(0.0, high - item.error) for item, (_, high) in zip(found, ends, strict=True))
    below = percents(max(0.0, item.error - low) for item, (low, _) in zip(found, ends, strict=True))
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "error of the sum, 95 % interval",
        "y": names,
        "x": percents(item.error for item in found),
        "error_x": {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1.5},
        "marker": {"color": BLUE, "size": 8},
        "hovertemplate": "%{y}: %{x:+.2f} %<extra>error of the sum</extra>",
    }


def _rival_marks(names: list[str], found: Predictions) -> list[Part]:
    """A trace for each rival, over the workloads for which it has an error."""
    errors: dict[str, dict[str, float]] = {}
    for name, item in zip(names, found, strict=True):
        for rival in item.rivals:
            if rival.error is not None:
                errors.setdefault(rival.predictor, {})[name] = rival.error
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": label(rival),
            "y": list(known),
            "x": percents(known.values()),
            "marker": {"color": COLORS[-1 - index % 4], "symbol": SYMBOLS[1 + index % 5], "size": 8},
            "hovertemplate": "%{y}: %{x:+.2f} %",
        }
        for index, (rival, known) in enumerate(errors.items())
    ]


def _rival_notes(found: Predictions) -> tuple[str, ...]:
    return (definitions.RIVALS,) if any(item.rivals for item in found) else ()


def _equality(low: float, high: float, limit: float | None) -> list[Part]:
    """The diagonal, and the band (1 - limit) to (1 + limit) around it."""
    ends = [low, high]
    traces: list[Part] = []
    if limit is not None and limit < 1:
        edge = {"color": GREEN, "width": 1, "dash": "dash"}
        lower = {"y": [end * (1 - limit) for end in ends], "showlegend": False}
        upper = {"y": [end * (1 + limit) for end in ends], "fill": "tonexty", "fillcolor": BAND}
        traces = [{**_line("within the limit", ends, edge), **part} for part in (lower, upper)]
    return [*traces, {**_line("equal", ends, {"color": GREY, "width": 1}), "y": ends}]


def _line(name: str, x: list[float], line: Part) -> Part:
    return {"type": "scatter", "mode": "lines", "name": name, "x": x, "line": line, "hoverinfo": "skip"}


def _batch_marks(index: int, item: WorkloadPrediction) -> Part:
    marker = {"color": SERIES[index % len(SERIES)], "symbol": SYMBOLS[index % len(SYMBOLS)], "size": 9}
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label(item.workload),
        "x": [1e3 * measured for measured, _ in item.batches],
        "y": [1e3 * predicted for _, predicted in item.batches],
        "marker": marker,
        "hovertemplate": "measured %{x:.4g} ms, predicted %{y:.4g} ms",
    }


def _padding_bars(name: str, names: list[str], fractions: Sequence[float | None], marker: Part) -> Part:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": names,
        "x": percents(fractions),
        "text": ["" if fraction is None else f"{fraction:.0%}" for fraction in fractions],
        "textposition": "outside",
        "cliponaxis": False,
        "marker": marker,
        "hovertemplate": "%{y}: %{x:.1f} %",
    }


def _limit_note(limit: float | None) -> tuple[str, ...]:
    return () if limit is None else (f"The green band is the limit, {100 * limit:.4g} % either way.",)


def _error_row(item: WorkloadPrediction) -> tuple[str, ...]:
    interval = number_text.UNKNOWN
    if item.interval is not None:
        interval = " to ".join(number_text.percent(end, signed=True) for end in item.interval)
    return (
        item.workload,
        number_text.milliseconds(item.measured_s),
        number_text.milliseconds(item.predicted_s),
        number_text.percent(item.error, signed=True),
        interval,
        number_text.percent(item.gated_error, signed=True),
        number_text.percent(item.repeat_error),
    )


def _rival_row(item: WorkloadPrediction) -> Callable[[RivalPrediction], tuple[str, ...]]:
    """A row of the workload's table for each of its rivals, under the same measured time."""

    def row(rival: RivalPrediction) -> tuple[str, ...]:
        half, error = rival.half_width, rival.error
        interval = number_text.UNKNOWN
        if half is not None and error is not None:
            interval = " to ".join(number_text.percent(end, signed=True) for end in (error - half, error + half))
        return (
            f"{item.workload}, {rival.predictor}{f': {rival.reason}' if rival.reason else ''}",
            number_text.milliseconds(item.measured_s),
            number_text.milliseconds(rival.predicted_s),
            number_text.percent(error, signed=True),
            interval,
            number_text.percent(rival.gated_error, signed=True),
            number_text.UNKNOWN,
        )

    return row


def _batch_row(item: WorkloadPrediction, index: int) -> tuple[str, ...]:
    measured_s, predicted_s = item.batches[index]
    times = (number_text.milliseconds(measured_s), number_text.milliseconds(predicted_s))
    return (item.workload, str(index), *times, number_text.percent(predicted_s / measured_s - 1, signed=True))


def _padding_row(item: WorkloadPrediction) -> tuple[str, ...]:
    fractions = (number_text.percent(item.prefill_padding), number_text.percent(item.decode_padding))
    return (item.workload, *fractions, number_text.count(item.num_dropped), number_text.count(item.num_drawn))
