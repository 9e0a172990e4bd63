"""A comparison of two stacks as a page: what regressed with its intervals as a picture, then every case in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pytest_npubench.comparison.outcome import Comparison, Row
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import chart, marks, table
from pytest_npubench.reports.html import environment
from pytest_npubench.reports.page import Chart, Table, tone_of
from pytest_npubench.reports.plot_parts import BLUE, GREEN, GREY, RED, axis, category_axis, label
from pytest_npubench.reports.svg import draw
from pytest_npubench.verdict import VerdictKind

MAX_ROWS = 60
COLORS = {VerdictKind.REGRESSED: RED, VerdictKind.IMPROVED: GREEN, VerdictKind.UNCHANGED: GREY}
CHANGES = (
    "Change of B against A with its 95 % interval, for worse and for better; the dotted line is no change. The "
    "furthest from it stand first."
)


def comparison_page(comparison: Comparison) -> str:
    counts = Counter(row.kind for row in comparison.counted)
    page = (
        environment()
        .get_template("comparison.html.jinja")
        .render(
            comparison=comparison,
            headline=_headline(comparison, counts),
            tone="bad" if comparison.regressed else "neutral" if comparison.num_undecided else "good",
            counts=[(kind.value, tone_of(kind), number) for kind, number in counts.items()],
            whole=[
                *((row.name, row.verdict) for row in comparison.answers if row.kind is VerdictKind.REGRESSED),
                *([("canary kernels", comparison.canary)] if comparison.canary else []),
                *comparison.suites,
            ],
            picture=_picture(comparison.counted),
            rows=_rows([*comparison.canaries, *comparison.answers, *comparison.rows]),
            gone=[("only in A: no longer measured", comparison.only_old), ("only in B: new", comparison.only_new)],
            draw=draw,
        )
    )
    return page.encode("utf-8", errors="replace").decode("utf-8")


def _headline(comparison: Comparison, counts: Counter[VerdictKind]) -> str:
    regressed = counts[VerdictKind.REGRESSED]
    undecided = f"{comparison.num_undecided} of {comparison.num_compared} undecided"
    if comparison.other_answers:
        return f"Other answers, so not safe; {regressed} of {comparison.num_compared} regressed, {undecided}"
    if regressed:
        return f"{regressed} of {comparison.num_compared} regressed, {undecided}"
    return f"{'The suite as a whole regressed' if comparison.regressed else 'No regression found'}, {undecided}"


def _percent_change(row: Row) -> tuple[float, tuple[float, float] | None] | None:
    """Returns the change in percent; None where nothing was compared or the metric is judged by its difference."""
    verdict = row.verdict
    if verdict.ratio is None or row.definition.gate == "difference":
        return None
    ends = None if verdict.interval is None else (100 * (verdict.interval[0] - 1), 100 * (verdict.interval[1] - 1))
    return 100 * (verdict.ratio - 1), ends


def _picture(rows: Sequence[Row]) -> Chart | None:
    changes = [(row, change) for row in rows if (change := _percent_change(row)) is not None]
    changes.sort(key=lambda item: -abs(item[1][0]))
    shown = changes[:MAX_ROWS]
    if not shown:
        return None
    series = []
    for kind in dict.fromkeys(row.kind for row, _ in shown):
        points = [(label(row.name), *change) for row, change in shown if row.kind is kind]
        values, names, ends = [item[1] for item in points], [item[0] for item in points], [item[2] for item in points]
        color = COLORS.get(kind, BLUE)
        series.append(marks(kind.value, values, names, "{y}: {x:+.2f} %", color=color, x_ends=ends))
    return chart(
        "Change of each case",
        f"Changes of {len(shown)} of {len(rows)} metrics, from {min(change[0] for _, change in shown):+.1f} to "
        f"{max(change[0] for _, change in shown):+.1f} %.",
        (CHANGES,),
        series,
        (axis("B against A, %"), category_axis([row.name for row, _ in shown])),
        _rows([row for row, _ in shown]),
        verticals=(0.0,),
    )


def _rows(rows: Sequence[Row]) -> Table:
    return table(
        "Cases and metrics",
        (
            ("case", lambda row: row.definition.case),
            ("metric", lambda row: row.definition.metric),
            ("verdict", _verdict),
            ("A", lambda row: _figures(row)[0]),
            ("B", lambda row: _figures(row)[1]),
            ("change", lambda row: _change(row, row.verdict.ratio)),
            ("95 % interval", lambda row: " to ".join(_change(row, end) for end in row.verdict.interval or ())),
            ("why", lambda row: row.verdict.reason),
        ),
        rows,
    )


def _verdict(row: Row) -> str:
    kind = f"{row.kind.value}{' as the suite did' if row.with_suite else ''}"
    return f"{row.other_answers}: {kind}" if row.other_answers else kind


def _figures(row: Row) -> list[str]:
    return number_text.figures((row.before, row.after), row.definition.unit)


def _change(row: Row, value: float | None) -> str:
    if value is None:
        return number_text.UNKNOWN
    return f"{value:+.4f}" if row.definition.gate == "difference" else f"{100 * (value - 1):+.2f} %"
