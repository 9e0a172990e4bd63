"""Policies side by side as bars: mean TTFT and mean TBT, all loads together."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import SERIES, Part, axis, category_axis, label, layout, milliseconds
from pytest_npubench.reports.served_loads import ServedFigure, ServedLoad, ServedPolicy
from pytest_npubench.suites.scheduling.report.policy_tables import cell, heading

PATTERNS = ("", "/", "x", ".")


def policy_charts(loads: Sequence[ServedLoad]) -> list[Chart]:
    """Mean TTFT and mean TBT by policy, bars of all loads together."""
    charts = (
        _bar_chart("Mean TTFT by policy", "ttft_mean_s", definitions.SERVED_TTFT, loads),
        _bar_chart("Mean TBT by policy", "tbt_mean_s", definitions.SERVED_TBT, loads),
    )
    return [chart for chart in charts if chart is not None]


def _bar_chart(title: str, name: str, note: str, loads: Sequence[ServedLoad]) -> Chart | None:
    known = [(load, item) for load in loads for item in load.policies if item.value(name) is not None]
    if not known:
        return None
    policies = list(dict.fromkeys(item.policy for _, item in known))
    of_load = [(load, [item for owner, item in known if owner is load]) for load in loads]
    shown = [(load, items) for load, items in of_load if items]
    return Chart(
        title=title,
        summary=f"{title} of {', '.join(policies)}, under {', '.join(load.name for load, _ in shown)}.",
        notes=(note, *(f"{load.name}; {load.terms}." for load, _ in shown)),
        figure={
            "data": [_bars(index, load, items, name) for index, (load, items) in enumerate(shown)],
            "layout": layout(
                axis(heading(name), rangemode="tozero"),
                category_axis([label(policy) for policy in policies]),
                barmode="group",
                showlegend=len(shown) > 1,
            ),
        },
        table=Table(
            caption=title,
            header=("policy", "load", heading(name), "95 % interval", "n"),
            rows=tuple(_bar_row(load, item, item.figures[name], name) for load, item in known),
        ),
        rows=len(policies) * len(shown),
    )


def _bars(index: int, load: ServedLoad, items: Sequence[ServedPolicy], name: str) -> Part:
    values = [item.value(name) or 0.0 for item in items]
    ends = [item.figures[name].interval or (value, value) for item, value in zip(items, values, strict=True)]
    spans = [(max(0.0, high - value), max(0.0, value - low)) for value, (low, high) in zip(values, ends, strict=True)]
    above, below = (milliseconds(span) for span in zip(*spans, strict=True))
    color = SERIES[index % len(SERIES)]
    return {
        "type": "bar",
        "orientation": "h",
        "name": label(load.name),
        "y": [label(item.policy) for item in items],
        "x": milliseconds(values),
        "error_x": {
            "type": "data",
            "symmetric": False,
            "array": above,
            "arrayminus": below,
            "color": color,
            "thickness": 2,
        },
        "marker": {
            "color": color,
            "opacity": 0.5,  # the error bar stands out of it on a light and on a dark ground
            "pattern": {"shape": PATTERNS[index % len(PATTERNS)], "size": 6, "solidity": 0.35},
        },
        "hovertemplate": "%{y}: %{x:.4g} ms",
    }


def _bar_row(load: ServedLoad, item: ServedPolicy, figure: ServedFigure, name: str) -> tuple[str, ...]:
    ends = figure.interval
    interval = number_text.UNKNOWN if ends is None else " to ".join(cell(name, end) for end in ends)
    return (item.policy, load.name, cell(name, figure.value), interval, number_text.count(figure.num_samples))
