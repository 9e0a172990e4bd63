"""Which of many versions in a row brought a change: the ends first, then by halves, and at last the two neighbours.

The gate says whether the ends differ, and in which metric the most. A version between is held against the first end. It
has the change where the 95 % interval of that metric lies wholly beyond half of what the ends differ by, and lacks it
where the interval lies wholly below; until then it is measured in more pairs. A version that cannot be measured, or
stays undecided, is passed over and named. What is reported is neighbour against neighbour, as the gate sees them.

Worked example: the ends differ by 8 %, and half of that is sqrt(1.08), 3.9 %. A version at +7.6 % (6.1 to 9.1) has the
change, one at +0.4 % (-0.9 to 1.7) lacks it, and one at +3 % (1 to 5) is measured longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from pytest_npubench.comparison.outcome import MOVED, Comparison, Row
from pytest_npubench.errors import ConfigError
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.wording import FACTOR

Measure = Callable[[str, str, int], Comparison]
"""Holds the second version against the first, in so many pairs. Raises ConfigError where one cannot be measured."""
Say = Callable[[str], None]
Outcome = Literal["found", "alike", "spread", "undecided"]
UNMEASURED = frozenset({VerdictKind.INVALID, VerdictKind.INCOMPARABLE, VerdictKind.NO_BASELINE})
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """What came of it: "found" between `before` and `after`, which follow each other; "alike": the ends do not differ;
    "spread": no two neighbours differ as the ends do; "undecided": it is somewhere between the two.

    `ends` is the metric that was followed, over all versions, and `step` the same from `before` to `after`; None where
    they were not judged. Where it is not decided whether the ends differ, `ends` is the metric that seems to most.
    `others` names the other metrics that the ends differ in, `passed_over` says by version why it is not on either
    side.
    """

    outcome: Outcome
    before: str
    after: str
    ends: Row | None = None
    step: Row | None = None
    others: tuple[str, ...] = ()
    passed_over: Mapping[str, str] = field(default_factory=dict)


class Search:
    """Bisects `versions`, of which the first lacks the change and the last has it."""

    def __init__(self, versions: Sequence[str], measure: Measure, *, num_pairs: int, most_pairs: int, say: Say) -> None:
        self._versions = versions
        self._measure = measure
        self._num_pairs, self._most_pairs = num_pairs, max(num_pairs, most_pairs)
        self._say = say
        self._passed_over: dict[str, str] = {}
        self._undecided: list[Row] = []

    def run(self) -> Bisection:
        """Raises ConfigError where the ends cannot be measured, or have no metric that can be compared."""
        first, last = self._versions[0], self._versions[-1]
        changed = self._decided(first, last, changed_rows)
        if changed is None:
            ends = max(self._undecided, key=lambda row: abs(_entry(row, row.verdict.ratio or 1.0)))
            return Bisection(outcome="undecided", before=first, after=last, ends=ends)
        if not changed:
            return Bisection(outcome="alike", before=first, after=last)
        ends = changed[0]
        self._say(f"{last} against {first}: {ends.name} {change_text(ends)}")
        low, high = self._narrowed(ends)
        before, after = self._versions[low], self._versions[high]
        step = self._decided(before, after, lambda comparison: decided_step(comparison, ends))
        outcome: Outcome = "undecided"
        if step is not None and high == low + 1:
            outcome = "found" if step.kind is ends.kind else "spread"
        others = tuple(row.name for row in changed[1:])
        passed_over = {name: self._passed_over[name] for name in self._versions[low:high] if name in self._passed_over}
        return Bisection(
            outcome=outcome,
            before=before,
            after=after,
            ends=ends,
            step=step,
            others=others,
            passed_over=passed_over,
        )

    def _narrowed(self, ends: Row) -> tuple[int, int]:
        """The positions of the last version that lacks the change and the first that has it, as close as it goes."""
        low, high = 0, len(self._versions) - 1
        while (middle := self._middle(low, high)) is not None:
            name = self._versions[middle]
            self._say(f"{high - low - 1} between {self._versions[low]} and {self._versions[high]}: {name}")
            try:
                is_changed = self._decided(self._versions[0], name, lambda comparison: has_change(comparison, ends))
                reason = f"not decided after {self._most_pairs} pairs"
            except ConfigError as error:
                is_changed, reason = None, str(error)
            if is_changed is None:
                self._passed_over[name] = reason
                self._say(f"{name} is passed over: {reason}")
            elif is_changed:
                high = middle
            else:
                low = middle
        return low, high

    def _middle(self, low: int, high: int) -> int | None:
        """The version between that is nearest to the middle and was not passed over; None where there is none."""
        between = [index for index in range(low + 1, high) if self._versions[index] not in self._passed_over]
        return min(between, key=lambda index: abs(2 * index - low - high), default=None)

    def _decided(self, old: str, new: str, decide: Callable[[Comparison], Answer | None]) -> Answer | None:
        """The answer, from twice as many pairs each time until there is one; None where the most do not tell."""
        num_pairs = self._num_pairs
        while True:
            comparison = self._measure(old, new, num_pairs)
            self._undecided = [row for row in comparison.counted if row.kind is VerdictKind.INCONCLUSIVE]
            answer = decide(comparison)
            if answer is not None or num_pairs >= self._most_pairs:
                return answer
            num_pairs = min(2 * num_pairs, self._most_pairs)
            self._say(f"{new} against {old} is not decided: measured longer, {num_pairs} pairs")


def changed_rows(comparison: Comparison) -> tuple[Row, ...] | None:
    """The metrics that became worse, else those that became better, the largest change first; None where some are not
    decided. Raises ConfigError where no metric can be compared."""
    rows = [row for row in comparison.counted if row.kind not in UNMEASURED]
    if not rows:
        reasons = [f"{row.name}: {row.verdict.reason}" for row in comparison.counted]
        raise ConfigError(f"the ends have no metric that can be compared: {'; '.join(reasons[:3]) or 'none is judged'}")
    for kind in (VerdictKind.REGRESSED, VerdictKind.IMPROVED):
        if moved := [row for row in rows if row.kind is kind]:
            return tuple(sorted(moved, key=_size, reverse=True))
    return None if any(row.kind is VerdictKind.INCONCLUSIVE for row in rows) else ()


def has_change(comparison: Comparison, ends: Row) -> bool | None:
    """Whether a version differs from the first end as the last one does; None where its interval does not tell.

    Raises ConfigError where the metric was not measured.
    """
    row = same_metric(comparison, ends)
    if ends.verdict.interval is None or ends.verdict.ratio is None:  # a counter, or answers
        return None if row.kind is VerdictKind.INCONCLUSIVE else row.kind is ends.kind
    if row.verdict.interval is None:
        return None
    whole = _entry(ends, ends.verdict.ratio)
    low, high = sorted(_entry(ends, end) / whole for end in row.verdict.interval)
    return True if low > 0.5 else False if high < 0.5 else None


def decided_step(comparison: Comparison, ends: Row) -> Row | None:
    """The metric between two neighbours where the gate is sure of it, None where it is not. Raises ConfigError where it
    was not measured."""
    row = same_metric(comparison, ends)
    return row if row.kind in MOVED or row.kind is VerdictKind.UNCHANGED else None


def same_metric(comparison: Comparison, ends: Row) -> Row:
    """The row of the metric that is followed. Raises ConfigError with the reason where it was not measured."""
    row = next((row for row in comparison.counted if row.definition.key == ends.definition.key), None)
    if row is None:
        raise ConfigError(f"{ends.name} is not measured")
    if row.kind in UNMEASURED:
        raise ConfigError(f"{ends.name} is {row.kind.value}: {row.verdict.reason}")
    return row


def change_text(row: Row) -> str:
    """Such as "+8.0 % (6.9 to 9.1)", from twice as much on "x2.4 (x2.3 to x2.5)"; where the metric has no interval the
    gate's reason."""
    verdict = row.verdict
    if verdict.ratio is None or verdict.interval is None:
        return verdict.reason
    if row.definition.gate == "difference":
        low, high = verdict.interval
        return f"{verdict.ratio:+.4g} ({low:.4g} to {high:.4g})"
    if verdict.ratio > FACTOR:
        return "x{:.3g} (x{:.3g} to x{:.3g})".format(verdict.ratio, *verdict.interval)
    change, low, high = (100 * (ratio - 1) for ratio in (verdict.ratio, *verdict.interval))
    return f"{change:+.1f} % ({low:.1f} to {high:.1f})"


def _entry(row: Row, ratio: float) -> float:
    return ratio if row.definition.gate == "difference" else math.log(ratio)


def _size(row: Row) -> float:
    """How far a metric moved at least, by its interval; what has none comes last."""
    ends = [abs(_entry(row, end)) for end in row.verdict.interval or ()]
    return min(ends, default=0.0)
