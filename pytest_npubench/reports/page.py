"""What a report page is made of: tables, charts with their data beside them, sections. Plain text; no markup here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pytest_npubench.campaign.visits import Round
from pytest_npubench.reports.lanes import Lane
from pytest_npubench.reports.plot_parts import CellGrid, DrawnFigure
from pytest_npubench.verdict import FAILING, VerdictKind
from pytest_npubench.verdict.case_record import CaseRecord, Cases

_GOOD = frozenset((VerdictKind.PASSED, VerdictKind.UNCHANGED, VerdictKind.IMPROVED))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table whose first column heads its rows; every row has as many cells as the header. `shows`: the keys of the
    cases, or the kinds of cases, that it is about."""

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    shows: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure, what it shows in one sentence, what its quantities mean, and its numbers; `shows` as of a table.
    `answer`: what was learnt, in a sentence, of a picture that answers the question of its suite."""

    title: str
    summary: str
    notes: tuple[str, ...]
    figure: DrawnFigure | CellGrid
    table: Table
    shows: tuple[str, ...] = ()
    answer: str = ""


Parts = tuple[tuple[Chart, ...], tuple[Table | None, ...], tuple[str, ...]]
"""Charts, tables and remarks of a campaign's section; None for a table that has nothing to show."""
Rounds = Sequence[Mapping[str, Any]]
"""The round records of a journal; `points` are numbers, as its reader has checked."""


class Shown(Protocol):
    """What a suite shows of its campaigns."""

    def parts(self, cases: Cases, rounds: Rounds) -> Parts:
        """Makes the parts of one campaign's section from its cases and its rounds."""
        ...

    def lanes(self, points: Round) -> Iterable[Lane]:
        """What one round becomes in a trace."""
        ...

    def lines(self, cases: Cases) -> Sequence[str]:
        """What the end of a run says of the suite's cases."""
        ...

    def across(self, cases: Cases) -> Sequence[Chart]:
        """Draws all batch sizes of one model on a device together."""
        ...

    def heading(self, record: CaseRecord[Any]) -> str:
        """What the title of a campaign's section says behind the hardware."""
        ...


ShownBy = Callable[[str], Shown]
"""What a suite of that name shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionCard:
    """A case that fails: what changed in a sentence for each metric, its pictures, and what of the stack differs from
    that of sessions accepted under another key. `row` is the anchor of the case's row in the summary."""

    anchor: str
    row: str
    title: str
    what: str
    verdict: str
    reason: str
    changes: tuple[str, ...]
    charts: tuple[Chart, ...]
    stack: tuple[str, ...]
    num_sessions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow:
    """One row of the summary: what was timed, the four figures by column name, the verdict and its reason, and in words
    what the case did. `picture` is the anchor of what shows more of the case: its card, or its campaign's section.
    `metrics`: where not all have the case's verdict, each one's figure with its change, its verdict and its tone."""

    anchor: str
    picture: str
    id: str
    what: str
    cells: tuple[tuple[str, str], ...]
    verdict: str
    tone: str
    reason: str
    did: str = ""
    metrics: tuple[tuple[str, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """A picture that answers, on the first screen. `anchor`: of the same picture with its numbers."""

    chart: Chart
    campaign: str
    anchor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignSection:
    """All that one device, model and batch size measured."""

    anchor: str
    title: str
    device: str
    remarks: tuple[str, ...]
    charts: tuple[Chart, ...]
    tables: tuple[Table, ...]
    metrics: Table | None
    cases: tuple[tuple[str, str], ...] = ()
    """The anchor of each case's row, and its kind/id."""
    pictures: Mapping[str, str] = field(default_factory=dict)
    """The anchor of a case's row -> that of the chart or table that shows it; of others it is the section's."""
    shown: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    """The anchor of a chart or table -> the rows of the cases that it shows, as in `cases`."""

    @property
    def parts(self) -> tuple[Chart | Table, ...]:
        return (*self.charts, *self.tables)

    def anchor_of(self, part: Chart | Table) -> str:
        parts: tuple[Sequence[Chart | Table], str] = (
            (self.charts, "chart") if isinstance(part, Chart) else (self.tables, "table")
        )
        return f"{self.anchor}-{parts[1]}-{[*map(id, parts[0])].index(id(part)) + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The head of the page: one line that says how it went, what it was held against, whether the device is well,
    verdict counts (kind, tone, number), and facts."""

    headline: str
    tone: str
    against: str
    device: str
    invalid: tuple[tuple[str, int], ...]
    """Why cases could not be measured, the most frequent reason first, with their number."""
    counts: tuple[tuple[str, str, int], ...]
    facts: tuple[tuple[str, str], ...]


def tone_of(verdict: VerdictKind) -> str:
    """good, bad or neutral."""
    return "bad" if verdict in FAILING else "good" if verdict in _GOOD else "neutral"
