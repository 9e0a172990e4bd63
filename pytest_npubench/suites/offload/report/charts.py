"""Charts of the offload suite: shadow outliers by their number, and what leaving outliers out costs in error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.reports.pair_cells import entries, of_kind, percent, plain, ratio, scaled
from pytest_npubench.reports.plot_parts import COLORS, SYMBOLS, Part, axis, label, layout, percents, spread_axis
from pytest_npubench.reports.record_fields import Record, number, numbers, table, text
from pytest_npubench.reports.reported import LLM_NPU, conditions, reported
from pytest_npubench.reports.reported import label as reported_label
from pytest_npubench.suites.offload.report import notes as offload_notes

Arms = Mapping[str, Mapping[str, Record]]
"""arm -> setting -> its row."""


def offload_charts(records: Sequence[Record]) -> tuple[Chart, ...]:
    """Every chart that these cases on one device have data for."""
    charts = (
        *(chart for record in of_kind(records, "shadow_outlier") for chart in shadow_charts(record)),
        *(chart for record in of_kind(records, "pruning") for chart in (pruning_chart(record), miss_chart(record))),
    )
    return tuple(chart for chart in charts if chart is not None)


def shadow_charts(record: Record) -> list[Chart | None]:
    """Error and time by the number of outlier channels, a line for each arm."""
    detail = table(record, "detail")
    arms = by_arm(detail)
    return [_error_chart(arms), _time_chart(arms, detail)]


def pruning_chart(record: Record) -> Chart | None:
    """Error by the share of outlier channels, and of layers, that go without a shadow."""
    detail = table(record, "detail")
    rows = {name: entries(detail, name) for name in ("channels", "layers")}
    known = {name: own for name, own in rows.items() if any(number(row, "pruned_fraction") is not None for row in own)}
    if not known:
        return None
    theirs = reported("3.3", "share", paper=LLM_NPU, quantity="layers pruned of their outliers")
    return Chart(
        title="Error by what is pruned",
        summary=f"Relative error by the share pruned: {'; '.join(_ends(name, own) for name, own in known.items())}.",
        notes=(
            offload_notes.PRUNED,
            offload_notes.ERROR,
            reported_label(conditions("3.3", paper=LLM_NPU), f"{theirs} % of layers pruned", paper=LLM_NPU),
        ),
        figure={
            "data": [
                _line(place, name, _shares(own, "pruned_fraction"), [number(row, "relative_error") for row in own])
                for place, (name, own) in enumerate(known.items())
            ],
            "layout": layout(axis("pruned, %"), axis("relative error", rangemode="tozero")),
        },
        table=Table(
            caption="Error by what is pruned",
            header=("what", "pruned %", "shadow work left %", "relative error"),
            rows=tuple(
                (
                    name,
                    percent(row, "pruned_fraction"),
                    percent(row, "work_fraction"),
                    plain(number(row, "relative_error")),
                )
                for name, own in known.items()
                for row in own
            ),
        ),
    )


def miss_chart(record: Record) -> Chart | None:
    """Error by the share of hot channels that have moved."""
    rows = [row for row in entries(table(record, "detail"), "missed") if number(row, "moved_fraction") is not None]
    if not rows:
        return None
    shares = _shares(rows, "moved_fraction")
    errors = {
        f"missed channels {word}": [number(row, f"{word}_error") for row in rows] for word in ("dropped", "fetched")
    }
    first, last = (plain(number(rows[place], "dropped_error")) for place in (0, -1))
    return Chart(
        title="Error by hot channels that moved",
        summary=f"Relative error with missed channels dropped: {first} where {percent(rows[0], 'moved_fraction')} % "
        f"moved, {last} where {percent(rows[-1], 'moved_fraction')} %.",
        notes=(offload_notes.MISSED, offload_notes.ERROR),
        figure={
            "data": [_line(place, name, shares, values) for place, (name, values) in enumerate(errors.items())],
            "layout": layout(axis("moved, %"), _error_axis([one for values in errors.values() for one in values])),
        },
        table=Table(
            caption="Error by hot channels that moved",
            header=("moved %", "missed %", "error, dropped", "error, fetched", "fetched kB"),
            rows=tuple(
                (
                    percent(row, "moved_fraction"),
                    percent(row, "miss_fraction"),
                    plain(number(row, "dropped_error")),
                    plain(number(row, "fetched_error")),
                    plain(scaled(row, "fetched_bytes", 1e-3)),
                )
                for row in rows
            ),
        ),
    )


def by_arm(detail: Record) -> dict[str, dict[str, Record]]:
    """The rows of a detail's arms, in their order."""
    found: dict[str, dict[str, Record]] = {}
    for row in entries(detail, "arms"):
        found.setdefault(text(row, "arm") or "an arm", {})[text(row, "setting")] = row
    return found


def settings_of(arms: Arms) -> list[str]:
    return list(dict.fromkeys(setting for rows in arms.values() for setting in rows))


def _error_chart(arms: Arms) -> Chart | None:
    errors = _columns(arms, "relative_error", 1.0)
    if not errors:
        return None
    settings = settings_of(arms)
    return Chart(
        title="Shadow outliers: error",
        summary=f"Relative error of {len(errors)} arms at {', '.join(settings)}.",
        notes=(offload_notes.SHADOW_ERROR, offload_notes.ERROR),
        figure={
            "data": _arm_lines(errors, settings),
            "layout": layout(
                _setting_axis(settings), _error_axis([one for values in errors.values() for one in values])
            ),
        },
        table=Table(
            caption="Relative error by arm",
            header=("setting", *errors),
            rows=tuple(
                (setting, *(plain(values[place]) for values in errors.values()))
                for place, setting in enumerate(settings)
            ),
        ),
    )


def _time_chart(arms: Arms, detail: Record) -> Chart | None:
    times_ms = _columns(arms, "total_s", 1e3)
    if not times_ms:
        return None
    settings = settings_of(arms)
    share = number(detail, "crossover_fraction")
    crossing = (
        "One unit with mixed precision is nowhere faster than the pair with fast signals."
        if share is None
        else f"From {number_text.percent(share)} % outlier channels on, one unit with mixed precision is faster than "
        "the pair with fast signals (the crossover)."
    )
    known = [value for values in times_ms.values() for value in values if value is not None]
    return Chart(
        title="Shadow outliers: time",
        summary=f"Time of {len(times_ms)} arms at {', '.join(settings)}. {crossing}",
        notes=(offload_notes.SHADOW_TIME, crossing),
        figure={
            "data": _arm_lines(times_ms, settings),
            "layout": layout(_setting_axis(settings), spread_axis("ms", known)),
        },
        table=Table(
            caption="Time by arm",
            header=("setting", "arm", "ms", "over fp32", "channels found"),
            rows=tuple(
                (
                    setting,
                    arm,
                    plain(scaled(row, "total_s", 1e3)),
                    ratio(number(row, "over"), numbers(row, "over_interval")),
                    number_text.count(number(row, "num_outlier_channels")),
                )
                for setting in settings
                for arm, rows in arms.items()
                if (row := rows.get(setting))
            ),
        ),
    )


def _columns(arms: Arms, name: str, factor: float) -> dict[str, list[float | None]]:
    """arm -> its figure at each setting, None where it is unknown or not above 0; without arms that have none."""
    settings = settings_of(arms)
    found = {
        arm: [_above_0(scaled(rows.get(setting, {}), name, factor)) for setting in settings]
        for arm, rows in arms.items()
    }
    return {arm: values for arm, values in found.items() if any(value is not None for value in values)}


def _arm_lines(columns: Mapping[str, Sequence[float | None]], settings: Sequence[str]) -> list[Part]:
    names = [_count(setting) for setting in settings]
    return [_line(place, arm, names, values) for place, (arm, values) in enumerate(columns.items())]


def _setting_axis(settings: Sequence[str]) -> Part:
    """Evenly spaced, for none has no place on a logarithmic axis."""
    names = [_count(setting) for setting in settings]
    return axis("outlier channels", type="category", categoryorder="array", categoryarray=names)


def _count(setting: str) -> str:
    """ "8 outliers" is "8"."""
    return label(setting.partition(" ")[0])


def _error_axis(errors: Sequence[float | None]) -> Part:
    known = [value for value in errors if value is not None and value > 0]
    return axis("relative error", type="log", exponentformat="power", dtick=1) if known else axis("relative error")


def _line(place: int, name: str, x: Sequence[object], y: Sequence[float | None]) -> Part:
    color = COLORS[place % len(COLORS)]
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label(name),
        "x": list(x),
        "y": list(y),
        "line": {"color": color, "width": 1.5},
        "marker": {"color": color, "symbol": SYMBOLS[place % len(SYMBOLS)], "size": 8},
        "hovertemplate": "%{x}: %{y:.4g}",
    }


def _shares(rows: Sequence[Record], name: str) -> list[float | None]:
    return percents(number(row, name) for row in rows)


def _ends(name: str, rows: Sequence[Record]) -> str:
    first, last = (
        f"{plain(number(row, 'relative_error'))} at {percent(row, 'pruned_fraction')} %" for row in (rows[0], rows[-1])
    )
    return f"{name} {first}, {last}"


def _above_0(value: float | None) -> float | None:
    return value if value is not None and value > 0 else None
