"""What came of a comparison: rows with their verdicts, what the suite and the canaries did as a whole, and the exit
status that a gate ends with.

Exit status: 1 where a case, the suite, the canaries or a model's answers regressed; else 3 where too large a share of
the comparison could not be decided; else 0.

Worked example: 10 metrics, of which 4 inconclusive and 2 of a case that is gone: 6 / 10 undecided, above 0.5: 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_npubench.comparison.members import Missing
from pytest_npubench.comparison.observation import Observation
from pytest_npubench.comparison.other_answers import campaigns_with_other_answers
from pytest_npubench.verdict import Verdict, VerdictKind

MOVED = frozenset({VerdictKind.REGRESSED, VerdictKind.IMPROVED})
UNDECIDED = frozenset(
    {VerdictKind.INCONCLUSIVE, VerdictKind.NO_BASELINE, VerdictKind.INCOMPARABLE, VerdictKind.INVALID}
)
REGRESSED_STATUS = 1
UNDECIDED_STATUS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One metric of a case. before and after are the levels that were judged (upgrade._level): after / before is the
    verdict's ratio, after - before where metrics are compared by differences. None where not compared.

    `with_suite` says that it moved, but by no more than the suite did as a whole; `other_answers` in words that the
    model answers otherwise.
    """

    definition: Observation
    verdict: Verdict
    before: float | None = None
    after: float | None = None
    with_suite: bool = False
    other_answers: str = ""

    @property
    def name(self) -> str:
        return f"{self.definition.case} {self.definition.metric}"

    @property
    def title(self) -> str:
        """Puts what has to be known before the metric's figures in front of its name."""
        return f"{self.other_answers}: {self.name}" if self.other_answers else self.name

    @property
    def kind(self) -> VerdictKind:
        return self.verdict.kind

    @property
    def size(self) -> float:
        """How far it moved, for order alone."""
        neutral = 0.0 if self.definition.gate == "difference" else 1.0
        return 0.0 if self.verdict.ratio is None else abs(self.verdict.ratio - neutral)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One side in words: where it comes from, how many sessions it has, and when the first and the last of them
    began (ISO 8601, UTC)."""

    label: str
    num_sessions: int
    first_at: str
    last_at: str

    @property
    def days(self) -> str:
        """ "2026-11-20 to 2026-11-24"."""
        return " to ".join(dict.fromkeys((self.first_at[:10], self.last_at[:10])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """suites: the verdicts of what all cases of a kind of metric did alike, each with the name of the kind. answers:
    the metrics of what models answer, which are a family of their own."""

    old: Described
    new: Described
    stack: tuple[str, ...]
    canary: Verdict | None
    canaries: tuple[Row, ...]
    answers: tuple[Row, ...]
    suites: tuple[tuple[str, Verdict], ...]
    rows: tuple[Row, ...]
    only_old: tuple[Missing, ...]
    only_new: tuple[Missing, ...]
    notes: tuple[str, ...]

    def of_kind(self, kind: VerdictKind, *, with_suite: bool | None = None) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.kind is kind and with_suite in (None, row.with_suite))

    @property
    def counted(self) -> tuple[Row, ...]:
        """Returns the rows that the share of the undecided is of: the canaries only where nothing else was compared."""
        return (*self.answers, *self.rows) or self.canaries

    @property
    def other_answers(self) -> tuple[str, ...]:
        """Returns the campaigns whose model answers otherwise in B."""
        return tuple(sorted(campaigns_with_other_answers((row.definition, row.verdict) for row in self.answers)))

    @property
    def num_compared(self) -> int:
        """Returns the number of metrics compared, and of cases that B no longer has."""
        return len(self.counted) + len(self.only_old)

    @property
    def num_undecided(self) -> int:
        """A case that vanished is not decided."""
        return sum(row.kind in UNDECIDED for row in self.counted) + len(self.only_old)

    @property
    def undecided_fraction(self) -> float:
        return self.num_undecided / self.num_compared if self.num_compared else 0.0

    @property
    def regressed(self) -> bool:
        kinds = [row.kind for row in (*self.answers, *self.rows)] + [verdict.kind for _, verdict in self.suites]
        return VerdictKind.REGRESSED in (*kinds, self.canary.kind if self.canary else None)

    def exit_status(self, undecided_share: float) -> int:
        if self.regressed:
            return REGRESSED_STATUS
        return UNDECIDED_STATUS if self.undecided_fraction > undecided_share else 0


def moved_with(suite: Verdict | None, verdict: Verdict, definition: Observation, margin: float) -> bool:
    """Whether a case moved by what the suite moved: the suite's ratio lies in the case's interval, or within the margin
    of its ratio."""
    if suite is None or suite.kind is not verdict.kind or suite.kind not in MOVED:
        return False
    if suite.ratio is None or verdict.ratio is None or verdict.interval is None:
        return False
    low, high = verdict.interval
    if low <= suite.ratio <= high:
        return True
    if definition.gate == "difference":
        return abs(verdict.ratio - suite.ratio) <= margin
    return abs(math.log(verdict.ratio / suite.ratio)) <= math.log1p(margin)


def canary_verdict(rows: Sequence[Row], together: Sequence[Verdict] = ()) -> Verdict | None:
    """What the canary kernels say: worse where any of them is or where they are `together`, decided where all are."""
    if not rows:
        return None
    for kind in (VerdictKind.REGRESSED, VerdictKind.IMPROVED):
        if moved := [row.verdict for row in rows if row.kind is kind]:
            ratios = sorted(verdict.ratio for verdict in moved if verdict.ratio is not None)
            by = f", x{ratios[0]:.3f} to x{ratios[-1]:.3f}" if ratios else ""
            return Verdict(kind=kind, reason=f"{len(moved)} of {len(rows)} canaries {kind.value}{by}")
        if alike := [verdict for verdict in together if verdict.kind is kind]:
            return alike[0]
    unchanged = sum(row.kind is VerdictKind.UNCHANGED for row in rows)
    decided = unchanged == len(rows)
    reason = f"{unchanged} of {len(rows)} canaries unchanged"
    return Verdict(kind=VerdictKind.UNCHANGED if decided else VerdictKind.INCONCLUSIVE, reason=reason)
