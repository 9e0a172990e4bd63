"""Policies side by side under one load: a table of all their figures, and mean TTFT and mean TBT as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.plot_parts import SERIES, Part, axis, category_axis, label, layout, milliseconds
from pytest_npubench.reports.record_fields import Record, kind_of, number, table
from pytest_npubench.reports.served_loads import Figure, ServedLoad, ServedPolicy, load_name

UNAVAILABLE = "unavailable"
PATTERNS = ("", "/", "x", ".")
NO_BREAK = "\u00a0"  # a cell breaks before its interval, not inside

# name of the figure -> how it is called, the unit it is shown in, and that unit's factor
FIGURES: Mapping[str, tuple[str, str, float]] = {
    "ttft_mean_s": ("mean TTFT", "ms", 1e3),
    "ttft_p99_s": ("p99 TTFT", "ms", 1e3),
    "tbt_mean_s": ("mean TBT", "ms", 1e3),
    "tbt_p99_s": ("p99 TBT", "ms", 1e3),
    "e2e_mean_s": ("mean E2E", "ms", 1e3),
    "slo_attainment": ("SLO attainment", "%", 100),
    "ttft_attainment": ("TTFT attainment", "%", 100),
    "tbt_attainment": ("TBT attainment", "%", 100),
    "tbt_std_pooled_s": ("TBT std, pooled", "ms", 1e3),
    "tbt_std_per_request_s": ("TBT std, per request", "ms", 1e3),
    "jain_index": ("Jain's index", "", 1),
    "mean_decode_batch_size": ("mean decode batch", "requests", 1),
    "expert_load_bytes_per_request": ("expert bytes per request", "GB", 1e-9),
    "energy_mj_per_prompt_and_output_token": ("energy per prompt and output token", "mJ", 1),
    "energy_mj_per_output_token": ("energy per output token", "mJ", 1),
}


def policy_table(load: ServedLoad) -> Table:
    """A row a figure: its value under each policy with the 95 % interval, what it rests on, what it means."""
    settings = "; ".join(f"{item.policy}: {item.settings}" for item in load.policies if item.settings)
    return Table(
        caption=f"Policies under {load.name}; {load.terms}",
        note=f"{definitions.POLICIES}{f' Settings: {settings}.' if settings else ''}",
        header=("figure", *(item.policy for item in load.policies), "n", "definition"),
        rows=tuple(
            _figure_row(name, load.policies) for name in FIGURES if any(name in item.figures for item in load.policies)
        ),
    )


def policy_charts(loads: Sequence[ServedLoad]) -> list[Chart]:
    """Mean TTFT and mean TBT by policy, bars of all loads together."""
    charts = (
        _bar_chart("Mean TTFT by policy", "ttft_mean_s", definitions.SERVED_TTFT, loads),
        _bar_chart("Mean TBT by policy", "tbt_mean_s", definitions.SERVED_TBT, loads),
    )
    return [chart for chart in charts if chart is not None]


def burst_tables(records: Sequence[Record]) -> list[Table]:
    """What layered and chunked prefill did under bursty arrivals, a table for each burstiness case."""
    tables = []
    for record in records:
        detail = table(record, "detail")
        columns = [table(detail, policy) for policy in ("layered", "chunked")]
        shown = [name for name in FIGURES if any(number(column, name) is not None for column in columns)]
        if kind_of(record) == "burstiness" and shown:
            cells = {name: tuple(_cell(name, number(column, name)) for column in columns) for name in shown}
            tables.append(
                Table(
                    caption=f"Bursty arrivals: {load_name(record)}, {_cv(detail)}",
                    header=("figure", "layered", "chunked"),
                    rows=tuple((_heading(name), *values) for name, values in cells.items()),
                )
            )
    return tables


def _figure_row(name: str, policies: Sequence[ServedPolicy]) -> tuple[str, ...]:
    known = {item.policy: item.figures[name] for item in policies if name in item.figures}
    counts = dict.fromkeys(number_text.count(figure.num_samples) for figure in known.values())
    definition = next((figure.definition for figure in known.values() if figure.definition), number_text.UNKNOWN)
    return (
        _heading(name),
        *(_with_interval(name, item.figures.get(name)) for item in policies),
        " / ".join(counts),
        "; ".join((definition, *_notes(known))),
    )


def _notes(known: Mapping[str, Figure]) -> list[str]:
    """Each note once, with the policies it is about where others do not share it; of a figure nobody has, one."""
    if all(figure.value is None for figure in known.values()):
        return [figure.note for figure in known.values() if figure.note][:1]
    policies: dict[str, list[str]] = {}
    for policy, figure in known.items():
        if figure.note:
            policies.setdefault(figure.note, []).append(policy)
    return [note if len(own) == len(known) else f"{', '.join(own)}: {note}" for note, own in policies.items()]


def _with_interval(name: str, figure: Figure | None) -> str:
    if figure is None or figure.interval is None or figure.value is None:
        return _cell(name, None if figure is None else figure.value)
    low, high = (_cell(name, end) for end in figure.interval)
    return f"{_cell(name, figure.value)} ({low}{NO_BREAK}to{NO_BREAK}{high})"


def _cell(name: str, value: float | None) -> str:
    return UNAVAILABLE if value is None else number_text.plain(value * FIGURES[name][2])


def _heading(name: str) -> str:
    called, unit, _ = FIGURES[name]
    return f"{called}, {unit}" if unit else called


def _cv(detail: Record) -> str:
    """The CV asked for and the one that came."""
    parts = (("CV", number(detail, "cv")), ("realised", number(detail, "realised_cv")))
    return ", ".join(f"{name} {value:.3g}" for name, value in parts if value is not None) or "CV unknown"


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
                axis(_heading(name), rangemode="tozero"),
                category_axis([label(policy) for policy in policies]),
                barmode="group",
                showlegend=len(shown) > 1,
            ),
        },
        table=Table(
            caption=title,
            header=("policy", "load", _heading(name), "95 % interval", "n"),
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


def _bar_row(load: ServedLoad, item: ServedPolicy, figure: Figure, name: str) -> tuple[str, ...]:
    ends = figure.interval
    interval = number_text.UNKNOWN if ends is None else " to ".join(_cell(name, end) for end in ends)
    return (item.policy, load.name, _cell(name, figure.value), interval, number_text.count(figure.num_samples))
