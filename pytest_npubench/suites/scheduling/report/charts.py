"""All charts of the scheduling suite; here those of attainment by rate and of one request's tokens over time.

What a paper reports stands beside ours under the name `reported`; it was measured on another model and device.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import BLUE, ORANGE, Part, axis, horizontal_line, layout, milliseconds, percents
from pytest_npubench.reports.record_fields import Record, finite, kind_of, number, numbers, table
from pytest_npubench.reports.served_loads import load_name, served_loads, workload_of
from pytest_npubench.suites.scheduling.report.policy_charts import policy_charts
from pytest_npubench.suites.scheduling.report.sweep_charts import chunk_charts, coverage_chart, group_chart

COLORS = {"layered": BLUE, "chunked": ORANGE}


def scheduling_charts(records: Sequence[Record]) -> tuple[Chart, ...]:
    """Every chart that these cases of one model on one device have data for."""
    charts = [
        *policy_charts(served_loads(records)),
        *chunk_charts(records),
        coverage_chart(records),
        *(group_chart(record) for record in records if kind_of(record) == "group_sweep"),
        *(attainment_chart(record) for record in records if kind_of(record) == "attainment"),
        *(timeline_chart(record) for record in records if kind_of(record) == "timeline"),
    ]
    return tuple(chart for chart in charts if chart is not None)


def attainment_chart(record: Record) -> Chart | None:
    """SLO attainment of both policies by the rate; the table has its two parts."""
    detail = table(record, "detail")
    rates = numbers(detail, "rate_per_s")
    attained = {policy: _attained(table(detail, "attainment"), policy) for policy in COLORS}
    if not rates or any(len(rows) != len(rates) for rows in attained.values()):
        return None
    workload = workload_of(record)
    return Chart(
        title=f"SLO attainment by rate, {workload}",
        summary=f"Share of requests that attain their SLO under {workload} at {rates[0]:.3g} to {rates[-1]:.3g} req/s: "
        + ", ".join(f"{name} {rows[0][0]:.0%} to {rows[-1][0]:.0%}" for name, rows in attained.items())
        + ".",
        notes=(definitions.ATTAINMENT, _capacity(detail), definitions.ATTAINMENT_REPORTED),
        figure={
            "data": [
                *(_attainment_line(policy, rates, rows) for policy, rows in attained.items()),
                *(_capacity_mark(policy, table(detail, "capacity").get(policy)) for policy in attained),
            ],
            "layout": layout(
                axis("rate, requests/s", rangemode="tozero"),
                axis("attainment, %", range=[0, 105]),
                shapes=[horizontal_line(90)],
            ),
        },
        table=Table(
            caption=f"SLO attainment by rate, {workload}",
            header=(
                "requests/s",
                *(f"{policy}, {part} %" for policy in attained for part in ("TTFT and TBT", "TTFT", "TBT")),
            ),
            rows=tuple(
                (f"{rate:.3g}", *(number_text.percent(part) for rows in attained.values() for part in rows[index]))
                for index, rate in enumerate(rates)
            ),
        ),
    )


def timeline_chart(record: Record) -> Chart | None:
    """How many tokens one request had at each time, under layered and under chunked prefill."""
    layered, chunked = (numbers(table(record, "detail"), name) for name in ("layered_s", "chunked_s"))
    if not layered or not chunked:
        return None
    name = load_name(record)
    return Chart(
        title=f"Tokens of one request over time, {name}",
        summary=f"The last token of one request under {name} came after {number_text.milliseconds(layered[-1])} ms "
        f"with layered and {number_text.milliseconds(chunked[-1])} ms with chunked prefill.",
        notes=(definitions.TIMELINE, definitions.TIMELINE_REPORTED),
        figure={
            "data": [_steps("layered", layered, "solid"), _steps("chunked", chunked, "dash")],
            "layout": layout(axis("ms since arrival", rangemode="tozero"), axis("tokens so far", rangemode="tozero")),
        },
        table=Table(
            caption=f"When each token came, {name}",
            header=("token", "layered ms", "chunked ms"),
            rows=tuple(
                (f"{index + 1}", _at(layered, index), _at(chunked, index))
                for index in range(max(len(layered), len(chunked)))
            ),
        ),
    )


def _attained(attainment: Record, policy: str) -> list[tuple[float, ...]]:
    """(both limits, TTFT, TBT) at each rate."""
    rows = attainment.get(policy)
    found = [finite(row) for row in rows] if isinstance(rows, (list, tuple)) else []
    return [row for row in found if len(row) == 3]


def _attainment_line(policy: str, rates: Sequence[float], rows: Sequence[tuple[float, ...]]) -> Part:
    symbol = "circle" if policy == "layered" else "square"
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": policy,
        "x": list(rates),
        "y": percents(row[0] for row in rows),
        "line": {"color": COLORS[policy]},
        "marker": {"color": COLORS[policy], "symbol": symbol, "size": 8},
        "hovertemplate": "%{x:.3g} req/s: %{y:.1f} %",
    }


def _capacity_mark(policy: str, entry: object) -> Part:
    """[rate, [low, high]] on the line of 90 %; nothing where no capacity is known."""
    rate, ends = entry if isinstance(entry, (list, tuple)) and len(entry) == 2 else (None, None)
    known, interval = finite([rate]), finite(ends)
    spans = [(interval[1] - at, at - interval[0]) for at in known] if len(interval) == 2 else []
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{policy}, capacity",
        "showlegend": bool(known),
        "x": list(known),
        "y": [90.0] * len(known),
        "marker": {"color": COLORS[policy], "symbol": "diamond-open", "size": 12, "line": {"width": 2}},
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": [max(0.0, above) for above, _ in spans],
            "arrayminus": [max(0.0, below) for _, below in spans],
            "color": COLORS[policy],
        },
        "hovertemplate": "capacity %{x:.3g} req/s",
    }


def _capacity(detail: Record) -> str:
    """What the curves come to, in words."""
    ratio, ends = number(detail, "capacity_ratio"), numbers(detail, "capacity_ratio_interval")
    if ratio is None:
        return "The dotted line is 90 %; no capacity is known, since not both curves surely cross it."
    interval = f" (95 % interval {ends[0]:.3g} to {ends[1]:.3g})" if len(ends) == 2 else ""
    return f"The dotted line is 90 %: a curve crosses it at its capacity, layered / chunked {ratio:.3g}{interval}."


def _steps(policy: str, times_s: Sequence[float], dash: str) -> Part:
    """Flat until the next token comes, then up by one."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": policy,
        "x": milliseconds((0.0, *times_s)),
        "y": list(range(len(times_s) + 1)),
        "line": {"shape": "hv", "color": COLORS[policy], "dash": dash, "width": 2},
        "hovertemplate": "token %{y} at %{x:.4g} ms",
    }


def _at(times_s: Sequence[float], index: int) -> str:
    return number_text.milliseconds(times_s[index]) if index < len(times_s) else number_text.UNKNOWN
