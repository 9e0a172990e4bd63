"""All charts of the partition suite; here that of lengths across the edges of graph sizes (HeteroInfer, Fig. 14)."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.pair_cells import entries, of_kind, operator_of, plain, scaled
from pytest_npubench.reports.plot_parts import COLORS, SYMBOLS, Part, axis, layout, spread_axis
from pytest_npubench.reports.record_fields import Record, number, table
from pytest_npubench.reports.reported import HETERO_INFER, conditions, reported
from pytest_npubench.reports.reported import label as reported_label
from pytest_npubench.suites.partition.report import notes as partition_notes
from pytest_npubench.suites.partition.report.bars import bar_charts
from pytest_npubench.suites.partition.report.curves import unit_charts

# how the chart calls a way of meeting a length -> its seconds in the record's rows
WAYS = {
    "solver's split": "decided_s",
    "padding": "padding_s",
    "pipe": "pipe_s",
    "online prepare": "online prepare_s",
    "chunked": "chunked_s",
}
REPORTED_WAYS = ("online prepare", "padding", "pipe")
REPORTED_TOKENS = 525


def partition_charts(records: Sequence[Record]) -> tuple[Chart, ...]:
    """Every chart that these cases of one model on one device have data for."""
    edges = (edges_chart(record) for record in of_kind(records, "bucket_edges"))
    return (*unit_charts(records), *bar_charts(records), *(chart for chart in edges if chart is not None))


def edges_chart(record: Record) -> Chart | None:
    """Time of one operator by length, a line for the solver's split and for each strategy of the figure."""
    rows = [row for row in entries(table(record, "detail"), "lengths") if (number(row, "tokens") or 0) > 0]
    times_ms = {name: [_above_0(scaled(row, field, 1e3)) for row in rows] for name, field in WAYS.items()}
    known = {name: values for name, values in times_ms.items() if any(value is not None for value in values)}
    if not known:
        return None
    operator, tokens = operator_of(record), [number(row, "tokens") for row in rows]
    speedups = table(table(record, "detail"), "speedups")
    over = {name: "1" if name == "solver's split" else plain(number(speedups, name)) for name in known}
    told = ", ".join(f"{name} {ratio}" for name, ratio in over.items() if name != "solver's split")
    theirs = {name: _reported(name) for name in known}
    printed = ", ".join(f"{name} {_reported(name)}" for name in REPORTED_WAYS)
    where = (conditions("figure 14", paper=HETERO_INFER), f"at {REPORTED_TOKENS} tokens, whole prefill: {printed}")
    return Chart(
        title=f"Across the edges of graph sizes: {operator}",
        summary=f"Time of {operator} at {len(rows)} lengths; over the solver's split in the median: {told}.",
        notes=(
            partition_notes.EDGES,
            f"Time over the solver's split, median over the lengths: {told}.",
            reported_label(*where, paper=HETERO_INFER),
        ),
        figure={
            "data": [_line(place, name, tokens, values) for place, (name, values) in enumerate(known.items())],
            "layout": layout(
                axis("tokens"), spread_axis("ms", [one for values in known.values() for one in values if one])
            ),
        },
        table=Table(
            caption=f"{operator} across the edges",
            header=("tokens", *(f"{name} ms" for name in known)),
            rows=(
                *(
                    (number_text.count(length), *(plain(values[place]) for values in known.values()))
                    for place, length in enumerate(tokens)
                ),
                ("over the solver's split, median", *over.values()),
                (f"reported at {REPORTED_TOKENS} tokens", *theirs.values()),
            ),
        ),
    )


def _line(place: int, name: str, tokens: Sequence[float | None], values: Sequence[float | None]) -> Part:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": list(tokens),
        "y": list(values),
        "line": {"color": COLORS[place], "width": 3 if name == "solver's split" else 1.5},
        "marker": {"color": COLORS[place], "symbol": SYMBOLS[place], "size": 8},
        "hovertemplate": "%{x} tokens: %{y:.4g} ms",
    }


def _reported(name: str) -> str:
    return reported("figure 14", "speedup", paper=HETERO_INFER, baseline=name.replace(" ", "_"))


def _above_0(value: float | None) -> float | None:
    return value if value is not None and value > 0 else None
