"""What changed by how much, as one picture: a mark with its 95 % interval for each metric, those furthest off first.

The axis is in percent. Where something changed beyond x3 it is logarithmic and has factors: on one of percent a metric
that became 20 times slower would leave no room for the others.

Worked example: x1.19 with the interval 1.17 to 1.21 is a mark at +19 % from +17 to +21 %; beside a metric at x20 it is
one at x1.19.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import Columns, chart, marks, table
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import BLUE, FAR, GREEN, GREY, RED, axis, category_axis, label, log_axis
from pytest_npubench.verdict import VerdictKind

COLORS = {VerdictKind.REGRESSED: RED, VerdictKind.IMPROVED: GREEN, VerdictKind.UNCHANGED: GREY}
CHANGES = (
    "Change with its 95 % interval, for worse and for better; the dotted line is no change. The furthest from it stand "
    "first."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How far a metric changed: `ratio` and the ends of its `interval` are now / before."""

    name: str
    kind: VerdictKind
    ratio: float
    interval: tuple[float, float] | None

    @property
    def size(self) -> float:
        """Its distance from no change, alike for twice and for half."""
        return abs(math.log(self.ratio)) if self.ratio > 0 else math.inf

    @property
    def ends_text(self) -> str:
        return " to ".join(number_text.change(end - 1) for end in self.interval or ())


def change_chart(changes: Sequence[Change], title: str, axis_title: str, most: int) -> Chart | None:
    """The `most` that changed furthest; None where there is nothing to show."""
    shown = sorted((change for change in changes if change.ratio > 0), key=lambda change: -change.size)[:most]
    if not shown:
        return None
    is_far = shown[0].size > math.log(FAR)
    at: Callable[[float], float] = (lambda ratio: ratio) if is_far else (lambda ratio: 100 * (ratio - 1))
    hover = "{y}: x{x:.4g}" if is_far else "{y}: {x:+.2f} %"
    series = [
        marks(
            kind.value,
            [at(change.ratio) for change in of_kind],
            [label(change.name) for change in of_kind],
            hover,
            color=COLORS.get(kind, BLUE),
            x_ends=[change.interval and (at(change.interval[0]), at(change.interval[1])) for change in of_kind],
        )
        for kind, of_kind in _by_kind(shown)
    ]
    columns: Columns[Change] = (
        ("metric", lambda change: change.name),
        ("verdict", lambda change: change.kind.value),
        ("change", lambda change: number_text.change(change.ratio - 1)),
        ("95 % interval", lambda change: change.ends_text),
    )
    furthest = number_text.change(shown[0].ratio - 1)
    across = log_axis(axis_title) if is_far else axis(f"{axis_title}, %")
    return chart(
        title,
        f"{title}: {len(shown)} of {len(changes)} metrics; the furthest is {shown[0].name}, {furthest}.",
        (CHANGES,),
        series,
        (across, category_axis([change.name for change in shown])),
        table(title, columns, shown),
        verticals=(at(1.0),),
    )


def _by_kind(changes: Sequence[Change]) -> Iterable[tuple[VerdictKind, list[Change]]]:
    kinds = dict.fromkeys(change.kind for change in changes)
    return ((kind, [change for change in changes if change.kind is kind]) for kind in kinds)
