"""What changes with the chunk's size, with the decode batch, and with the number of layer groups."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import (
    BLUE,
    GREY,
    ORANGE,
    Part,
    axis,
    layout,
    log_axis,
    milliseconds,
    percents,
    round_ticks,
)
from pytest_npubench.reports.record_fields import Record, as_number, kind_of, number, numbers, table
from pytest_npubench.reports.reported import conditions, label, reported
from pytest_npubench.reports.served_loads import load_name

REPORTED_COVERAGE = "reported (Layered Prefill, Table 1: 128 experts, 8 a token)"


def chunk_charts(records: Sequence[Record]) -> list[Chart]:
    """Expert bytes and prefill time of one prompt by the size of the chunks it is cut into."""
    found = _by_size(records, "chunk_sweep", "chunk_size_tokens")
    loaded = {size: number(table(record, "detail"), "expert_load_bytes") for size, record in found.items()}
    prefill_s = {size: number(record, "measured_s") for size, record in found.items()}
    prompt = _prompt_note(tuple(found.values()))
    charts = (
        _chunk_chart(
            "Expert bytes by chunk size",
            ("expert bytes", "GB", ORANGE),
            (definitions.CHUNK_BYTES, *prompt, definitions.CHUNK_REPORTED),
            {size: value / 1e9 for size, value in loaded.items() if value is not None},
            {},
        ),
        _chunk_chart(
            "Prefill time by chunk size",
            ("prefill", "ms", BLUE),
            (definitions.CHUNK_PREFILL, *prompt, definitions.STANDARD_ERROR),
            {size: value * 1e3 for size, value in prefill_s.items() if value is not None},
            {size: _error_ms(record) for size, record in found.items()},
        ),
    )
    return [chart for chart in charts if chart is not None]


def coverage_chart(records: Sequence[Record]) -> Chart | None:
    """The share of a layer's experts that one decode step loads, by its batch, with the paper's beside it."""
    found = _by_size(records, "expert_coverage", "batch_size")
    measured = {size: number(table(record, "detail"), "coverage") for size, record in found.items()}
    reported = {size: number(table(record, "detail"), "published_coverage") for size, record in found.items()}
    known = [size for size, value in measured.items() if value is not None]
    if not known:
        return None
    ends = [f"{number_text.percent(measured[size])} % at {size}" for size in (known[0], known[-1])]
    theirs = {**_marks(REPORTED_COVERAGE, GREY, "square-open"), "line": {"color": GREY, "dash": "dash"}}
    return Chart(
        title="Expert coverage by decode batch",
        summary=f"Share of its experts that a layer loads for a decode step, by the requests in it: {ends[0]}, "
        f"{ends[1]}.",
        notes=(definitions.EXPERT_COVERAGE, definitions.COVERAGE_REPORTED),
        figure={
            "data": [
                {**_marks("measured", BLUE, "circle"), "x": list(measured), "y": percents(measured.values())},
                {**theirs, "x": list(reported), "y": percents(reported.values())},
            ],
            "layout": layout(log_axis("decode batch, requests", tuple(found)), axis("coverage, %", range=[0, 105])),
        },
        table=Table(
            caption="Expert coverage by decode batch",
            header=("decode batch", "measured %", f"{REPORTED_COVERAGE} %"),
            rows=tuple(
                (f"{size}", number_text.percent(measured[size]), number_text.percent(reported[size])) for size in found
            ),
        ),
    )


def group_chart(record: Record) -> Chart | None:
    """Mean TTFT and worst TBT of layered prefill by the number of layer groups, under one load."""
    columns = [numbers(table(record, "detail"), name) for name in ("groups", "ttft_mean_s", "worst_tbt_s")]
    if len(set(map(len, columns))) > 1:
        return None  # where one lacks a value, nobody knows which
    rows = sorted(row for row in zip(*columns, strict=True) if min(row) > 0)
    if not rows:
        return None
    groups, ttft_s, tbt_s = zip(*rows, strict=True)
    name, times_ms = load_name(record), [1e3 * value for value in (*ttft_s, *tbt_s)]
    cells = [
        (
            number_text.count(group),
            number_text.milliseconds(ttft),
            number_text.milliseconds(tbt),
            reported("11", "ttft_mean", 1e3, layer_groups=group),
            reported("11", "tbt_p99", layer_groups=group),
        )
        for group, ttft, tbt in rows
    ]
    low, high = min(times_ms) / 1.6, max(times_ms) * 1.6
    return Chart(
        title=f"TTFT and TBT by layer groups, {name}",
        summary=f"Layered prefill under {name}: mean TTFT {cells[0][1]} ms and worst TBT {cells[0][2]} ms with "
        f"{cells[0][0]} layer groups, {cells[-1][1]} ms and {cells[-1][2]} ms with {cells[-1][0]}.",
        notes=(definitions.GROUPS, label(conditions("11"), definitions.GROUPS_REPORTED)),
        figure={
            "data": [
                {**_marks("mean TTFT", BLUE, "circle"), "x": list(groups), "y": milliseconds(ttft_s)},
                {**_marks("worst TBT", ORANGE, "square"), "x": list(groups), "y": milliseconds(tbt_s)},
            ],
            "layout": layout(
                log_axis("layer groups", groups),
                log_axis("ms", round_ticks(low, high), range=[math.log10(low), math.log10(high)]),
            ),
        },
        table=Table(
            caption=f"Layer groups under {name}",
            header=("layer groups", "mean TTFT ms", "worst TBT ms", "reported mean TTFT ms", "reported p99 TBT ms"),
            rows=tuple(cells),
        ),
    )


def _by_size(records: Sequence[Record], kind: str, field: str) -> dict[int, Record]:
    """The cases of that kind by a number >= 1 of their detail, ascending."""
    sizes = ((number(table(record, "detail"), field), record) for record in records if kind_of(record) == kind)
    found = {int(size): record for size, record in sizes if size is not None and size >= 1}
    return {size: found[size] for size in sorted(found)}


def _prompt_note(records: Sequence[Record]) -> tuple[str, ...]:
    """How long the prompt was, where all cases say the same."""
    tokens = {number(table(record, "detail"), "prompt_tokens") for record in records}
    length = tokens.pop() if len(tokens) == 1 else None
    return () if length is None else (f"The prompt has {number_text.count(length)} tokens.",)


def _error_ms(record: Record) -> float:
    """One standard error of the mean over the rounds."""
    error_s = (number(record, "repeat_error") or 0.0) * (number(record, "measured_s") or 0.0)
    return 1e3 * (as_number(error_s) or 0.0)


def _chunk_chart(
    title: str,
    quantity: tuple[str, str, str],
    notes: tuple[str, ...],
    values: Mapping[int, float],
    errors: Mapping[int, float],
) -> Chart | None:
    """quantity is its name, unit and colour; errors are empty for what is counted."""
    if not values:
        return None
    name, unit, color = quantity
    sizes = tuple(values)
    trace = {**_marks(name, color, "circle"), "x": list(sizes), "y": list(values.values())}
    if errors:
        trace["error_y"] = {"type": "data", "array": [errors[size] for size in sizes], "thickness": 1.5}
    texts = {size: number_text.plain(value) for size, value in values.items()}
    error_texts = {size: (number_text.plain(error),) for size, error in errors.items()}
    return Chart(
        title=title,
        summary=f"{title}: {texts[sizes[0]]} {unit} in chunks of {sizes[0]} tokens, {texts[sizes[-1]]} {unit} in "
        f"chunks of {sizes[-1]}.",
        notes=notes,
        figure={
            "data": [trace],
            "layout": layout(
                log_axis("chunk, tokens", sizes), axis(f"{name}, {unit}", rangemode="tozero"), showlegend=False
            ),
        },
        table=Table(
            caption=title,
            header=("chunk, tokens", f"{name} {unit}", *((f"± standard error {unit}",) if errors else ())),
            rows=tuple((f"{size}", texts[size], *error_texts.get(size, ())) for size in sizes),
        ),
    )


def _marks(name: str, color: str, symbol: str) -> Part:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "line": {"color": color},
        "marker": {"color": color, "symbol": symbol, "size": 8},
        "hovertemplate": "%{x}: %{y:.4g}",
    }
