"""A comparison of two stacks as a page: what regressed with its intervals as a picture, then every case in a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from pytest_npubench.comparison.outcome import Comparison, Row
from pytest_npubench.core.short_id import short_ids
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import table
from pytest_npubench.reports.change_chart import Change, change_chart
from pytest_npubench.reports.html import environment
from pytest_npubench.reports.overview import shared
from pytest_npubench.reports.page import Chart, Table, tone_of
from pytest_npubench.reports.svg import draw
from pytest_npubench.verdict import VerdictKind

MAX_ROWS = 16


def comparison_page(comparison: Comparison) -> str:
    counts = Counter(row.kind for row in comparison.counted)
    rows = sorted([*comparison.canaries, *comparison.answers, *comparison.rows], key=lambda row: _order(row.kind))
    common = shared(row.verdict.reason for row in rows)
    page = (
        environment()
        .get_template("comparison.html.jinja")
        .render(
            comparison=comparison,
            headline=_headline(comparison, counts),
            tone="bad" if comparison.regressed else "neutral" if comparison.num_undecided else "good",
            counts=[
                (kind.value, tone_of(kind), number)
                for kind, number in sorted(counts.items(), key=lambda count: _order(count[0]))
            ],
            whole=[
                *((row.name, row.verdict) for row in comparison.answers if row.kind is VerdictKind.REGRESSED),
                *([("canary kernels", comparison.canary)] if comparison.canary else []),
                *((f"all cases ({name})", verdict) for name, verdict in comparison.suites),
            ],
            regressed=_regressed(comparison),
            picture=_picture(comparison.counted),
            common=common,
            rows=_rows(rows, dict(common)),
            gone=[("only in A: no longer measured", comparison.only_old), ("only in B: new", comparison.only_new)],
            draw=draw,
        )
    )
    return page.encode("utf-8", errors="replace").decode("utf-8")


def _order(kind: VerdictKind) -> int:
    """The place of a verdict: what regressed stands first, what improved next."""
    return {VerdictKind.REGRESSED: 0, VerdictKind.IMPROVED: 1}.get(kind, 2)


def _headline(comparison: Comparison, counts: Counter[VerdictKind]) -> str:
    regressed = counts[VerdictKind.REGRESSED]
    undecided = f"{comparison.num_undecided} of {comparison.num_compared} undecided"
    if comparison.other_answers:
        return f"Other answers, so not safe; {regressed} of {comparison.num_compared} regressed, {undecided}"
    if regressed:
        return f"{regressed} of {comparison.num_compared} regressed, {undecided}"
    return f"{'The suite as a whole regressed' if comparison.regressed else 'No regression found'}, {undecided}"


def _picture(rows: Sequence[Row]) -> Chart | None:
    short = short_ids({row.definition.case: "" for row in rows})
    changes = [
        Change(
            name=f"{short[row.definition.case]} {row.definition.metric}",
            kind=row.kind,
            ratio=row.verdict.ratio,
            interval=row.verdict.interval,
        )
        for row in rows
        if row.verdict.ratio is not None and row.definition.gate != "difference"
    ]
    return change_chart(changes, "What changed", "B / A", MAX_ROWS)


def _regressed(comparison: Comparison) -> list[tuple[str, str]]:
    """The name of each metric that regressed, the furthest first, and by how much."""
    rows = [row for row in comparison.counted if row.kind is VerdictKind.REGRESSED]
    return [(row.title, _words(row)) for row in sorted(rows, key=lambda row: -row.size)]


def _words(row: Row) -> str:
    if row.verdict.ratio is None:
        return row.verdict.reason
    before, after = _figures(row)
    ends = " to ".join(_change(row, end) for end in row.verdict.interval or ())
    return f"{after}, was {before}: {_change(row, row.verdict.ratio)}{f' (95 % {ends})' if ends else ''}"


def _rows(rows: Sequence[Row], common: Collection[str]) -> Table:
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
            ("why", lambda row: "" if row.verdict.reason in common else row.verdict.reason),
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
    return f"{value:+.4f}" if row.definition.gate == "difference" else number_text.change(value - 1)
