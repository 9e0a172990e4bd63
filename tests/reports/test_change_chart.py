"""All changes as one picture: in percent, and as factors on a logarithmic axis once one is beyond x3."""

from __future__ import annotations

import pytest

from pytest_npubench.reports.change_chart import Change, change_chart
from pytest_npubench.reports.plot_parts import level_axis
from pytest_npubench.verdict import VerdictKind

from .page import check_svg


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
