"""The parts that suites build their sections of."""

from __future__ import annotations

import pytest

from pytest_npubench.reports import build, number_text, svg
from pytest_npubench.reports.plot_parts import DrawnFigure, DrawnSeries, Shape, axis, category_axis

from .page import check_svg

ROWS = [("a", 1.0, None), ("b", None, None)]
COLUMNS = (("arm", lambda row: row[0]), ("ms", lambda row: build.plain(row[1])), ("x", lambda row: build.plain(row[2])))


def test_a_table_has_a_cell_for_each_column_and_row() -> None:
    found = build.table("Times", COLUMNS, ROWS, note="n")
    assert found.header == ("arm", "ms", "x")
    assert found.rows == (("a", "1", "–"), ("b", "–", "–"))
    assert (found.caption, found.note) == ("Times", "n")


def test_columns_that_nobody_knows_are_left_out_but_the_first() -> None:
    found = build.table("Times", COLUMNS, ROWS, without_unknown=True)
    assert found.header == ("arm", "ms")
    assert found.rows == (("a", "1"), ("b", "–"))
    unknown = build.table("Times", (("arm", lambda _: number_text.UNKNOWN),), ROWS, without_unknown=True)
    assert unknown.header == ("arm",)


def test_a_series_table_stands_its_series_side_by_side() -> None:
    found = build.series_table("T", "tokens", ("1", "2"), {"p": ("a", "b"), "q": ("c", "d")})
    assert found.header == ("tokens", "p", "q")
    assert found.rows == (("1", "a", "c"), ("2", "b", "d"))


def test_series_differ_by_symbol_as_well_as_by_colour() -> None:
    """So that nothing hangs on colour alone."""
    traces = [build.line("n", [1], [1.0], "", index=index) for index in range(6)]
    assert len({trace.symbol for trace in traces}) == 6
    assert len({trace.color for trace in traces}) == 6


@pytest.mark.parametrize(
    "trace",
    [
        build.line("<b>", [1], [1.0], ""),
        build.marks("<b>", [1], [1.0], "", color="red"),
        build.stairs("<b>", [1.0], [1.0], "", color="red"),
        build.bars("<b>", ["r"], [1.0], "", color="red"),
    ],
)
def test_a_name_is_shown_as_it_is(trace: DrawnSeries) -> None:
    figure = DrawnFigure(
        series=(trace,), x=axis("x"), y=category_axis(["r"]) if trace.shape is Shape.BARS else axis("y")
    )
    check_svg(figure)
    text = svg.draw(figure, label="a chart")
    assert text.count("&lt;b&gt;") == 3  # the legend, the group, and what a mark or line says
    assert "<b" not in text
