"""The parts that sections are built of: times as they are printed, and all changes as one picture."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.comparison.observation import Observation
from pytest_npubench.comparison.outcome import Comparison, Described, Row
from pytest_npubench.reports import build, number_text, svg
from pytest_npubench.reports.campaign_sections import metrics_table
from pytest_npubench.reports.change_chart import Change, change_chart
from pytest_npubench.reports.comparison import render_comparison
from pytest_npubench.reports.plot_parts import DrawnFigure, DrawnSeries, Shape, axis, category_axis, level_axis
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.result import Judgement, Metric

from .page import check_svg
from .test_run_rows import record_of

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


PASSED = Verdict(kind=VerdictKind.PASSED, reason="within its limits")
PER_S = {"s": Decimal(1), "ms": Decimal(10) ** 3, "µs": Decimal(10) ** 6, "ns": Decimal(10) ** 9}
times_s = st.floats(-12, 9).map(lambda power: 10.0**power)  # as many of each unit


def parsed(text: str) -> tuple[Decimal, Decimal]:
    """Seconds, and half of one in the last digit that is shown."""
    number, unit = text.replace(",", "").split()
    digits = Decimal(number)
    exponent = digits.as_tuple().exponent
    assert isinstance(exponent, int)
    last = max(Decimal(10) ** exponent, Decimal(10) ** (digits.adjusted() - 3))
    return digits / PER_S[unit], (last if len(number.split(".")[0]) < 4 else Decimal(1)) / 2 / PER_S[unit]


@given(times_s, st.sampled_from((1, -1)))
def test_a_time_reads_back_within_its_last_digit(value: float, sign: int) -> None:
    shown, half = parsed(number_text.time(sign * value))
    assert abs(shown - Decimal(sign * value)) <= half * Decimal("1.0001")


@given(st.lists(times_s, min_size=1, max_size=4))
def test_times_that_are_compared_have_one_unit_and_read_back(values: list[float]) -> None:
    unit = number_text.scale("s", *values, None)
    texts = [number_text.time(value, unit) for value in values]
    assert len({text.split()[1] for text in texts}) == 1
    for text, value in zip(texts, values, strict=True):
        shown, half = parsed(text)
        assert abs(shown - Decimal(value)) <= half * Decimal("1.0001")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-7, "100 ns"),
        (4.2e-10, "0.42 ns"),
        (9.996e-7, "999.6 ns"),
        (1e-6, "1 µs"),
        (0.0004255, "425.5 µs"),
        (0.4255, "425.5 ms"),
        (12.345678, "12.35 s"),
        (0.0, "0 ms"),
        (None, "–"),
    ],
)
def test_times(value: float | None, text: str) -> None:
    assert number_text.time(value) == text


@pytest.mark.parametrize(
    ("values", "unit", "texts"),
    [
        ((1.2e6, 9e5), "B", ["1.2 MB", "0.9 MB"]),
        ((999.0, 0.0), "B", ["999 B", "0 B"]),
        ((3.35e12,), "B/s", ["3.35 TB/s"]),
        ((3.2e9, 12e9), "bytes/request", ["3.2 GB/request", "12 GB/request"]),
        ((2.5e-4, None), "J", ["250 µJ", "–"]),
        ((0.0,), "J", ["0 J"]),
        ((45.5, 12345.6), "tokens/s", ["45.5 tokens/s", "12,346 tokens/s"]),
        ((1.2345,), "ratio", ["x1.234"]),
        ((0.25,), "", ["0.25"]),
    ],
)
def test_figures_that_are_compared_have_one_scale(values: list[float | None], unit: str, texts: list[str]) -> None:
    assert number_text.figures(values, unit) == texts


def test_a_comparison_writes_bytes_with_a_prefix() -> None:
    text = render_comparison(compared(1.2e6, 2.4e6, "B"), width=160, color=False)
    assert re.search(r"s/k/a call_s +1\.2 MB +2\.4 MB", text)


def compared(before: float, after: float, unit: str = "s") -> Comparison:
    """One case that had so many of the unit in A and in B."""
    told = Observation(
        case="s/k/a", digest="0", metric="call_s", unit=unit, better="lower", gate="ratio", margin=None, processes=()
    )
    verdict = Verdict(kind=VerdictKind.REGRESSED, reason="slower", ratio=after / before, interval=(1.0, 2.0))
    return Comparison(
        old=Described(label="A", num_sessions=1, first_at="2026-11-20T02:00:00", last_at="2026-11-20T02:00:00"),
        new=Described(label="B", num_sessions=1, first_at="2026-11-21T02:00:00", last_at="2026-11-22T02:00:00"),
        stack=(),
        canary=None,
        answers=(),
        canaries=(),
        suites=(),
        rows=(Row(definition=told, verdict=verdict, before=before, after=after),),
        only_old=(),
        only_new=(),
        notes=(),
    )


@given(times_s, st.floats(0.1, 10))
def test_both_sides_of_a_comparison_have_one_unit(before: float, ratio: float) -> None:
    text = render_comparison(compared(before, before * ratio), width=160, color=False)
    row = next(line for line in text.splitlines() if "s/k/a call_s" in line)
    (first, unit), (second, other) = re.findall(r"(\S+) (s|ms|µs|ns)\b", row)
    assert unit == other
    for shown, value in ((first, before), (second, before * ratio)):
        assert abs(parsed(f"{shown} {unit}")[0] - Decimal(value)) <= parsed(f"{shown} {unit}")[1] * Decimal("1.0001")


@given(times_s, st.lists(times_s, min_size=1, max_size=5))
def test_a_metric_and_its_samples_have_one_unit(value: float, samples: list[float]) -> None:
    metric = Metric(name="call_s", unit="s", value=value, samples=tuple(samples))
    table = metrics_table(Cases.read([record_of("s/k/a", Judgement(verdict=PASSED, metrics=(metric,)))]))
    assert table is not None
    ((_, _, shown, _, lowest, highest, *_),) = table.rows
    assert len({text.split()[1] for text in (shown, lowest, highest)}) == 1


def test_a_change_that_is_a_factor() -> None:
    assert [number_text.change(one) for one in (-0.5, 1.0, 1.4, 98.7, 783294.7)] == [
        *("-50.00 %", "+100.00 %", "x2.4", "x100", "x783,296"),
    ]


@pytest.mark.parametrize("width", [100, 110])
def test_a_long_name_leaves_every_figure_of_a_comparison_its_column(width: int) -> None:
    row = compared(0.0003329, 0.009252).rows[0]
    named = replace(row.definition, case="own/callable/cpu-callable-b1-test_work.py::test_function[far]")
    comparison = replace(compared(1.0, 2.0), rows=(replace(row, definition=named),))
    lines = render_comparison(comparison, width=width, color=False).splitlines()
    assert max(map(len, lines)) <= width
    assert any("x1.000 to x2.000" in line for line in lines)
    assert any("detectable" in line for line in lines)


def change(name: str, ratio: float, kind: VerdictKind = VerdictKind.REGRESSED) -> Change:
    return Change(name=name, kind=kind, ratio=ratio, interval=(ratio * 0.9, ratio * 1.1))


@pytest.mark.parametrize(
    ("ratios", "is_log", "middle"),
    [((1.19, 0.98), False, 0.0), ((2.9, 1.0), False, 0.0), ((3.1, 1.0), True, 1.0), ((0.3, 1.2), True, 1.0)],
)
def test_factors_stand_on_a_logarithmic_axis(ratios: tuple[float, ...], is_log: bool, middle: float) -> None:
    drawn = change_chart([change(f"c{number}", ratio) for number, ratio in enumerate(ratios)], "Changes", "B / A", 9)
    assert drawn is not None
    assert drawn.figure.x.log is is_log
    assert drawn.figure.verticals == (middle,)
    (series,) = drawn.figure.series
    expected = sorted(ratios, key=lambda ratio: -max(ratio, 1 / ratio))
    assert list(series.x) == pytest.approx([ratio if is_log else 100 * (ratio - 1) for ratio in expected])
    low, high = series.x_ends[0]
    assert low < series.x[0] < high
    check_svg(drawn.figure)


def test_the_furthest_stand_first_and_kinds_differ_by_colour() -> None:
    changes = [change("a", 1.01, VerdictKind.UNCHANGED), change("b", 0.5, VerdictKind.IMPROVED), change("c", 1.9)]
    drawn = change_chart(changes, "Changes", "B / A", 2)
    assert drawn is not None
    assert [row[0] for row in drawn.table.rows] == ["b", "c"]
    assert len({series.color for series in drawn.figure.series}) == 2
    assert "2 of 3 metrics; the furthest is b, -50.00 %" in drawn.summary
    assert change_chart([], "Changes", "B / A", 2) is None


@pytest.mark.parametrize(
    ("values", "is_log"),
    [((1.0, 2.9), False), ((1.0, 3.1), True), ((-1.0, 9.0), False), ((0.0, 9.0), False), ((), False)],
)
def test_a_level_that_changed_beyond_x3_has_a_logarithmic_axis(values: tuple[float, ...], is_log: bool) -> None:
    assert level_axis("ms", values).log is is_log
