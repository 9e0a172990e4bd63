"""Cases side by side, with what each night did to all of them alike taken off: what the gate works on.

A row is a case, its nights oldest first: the accepted ones that are its reference, then what came after them, then
tonight. No session from a case's `since` on is in its reference.

Entries of the scale "difference" are in units of their group: a hundredth of what its cases usually stray by is 1e-4,
so that prediction errors and attained fractions share one noise law.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pytest_npubench.stats.checks import BoolArray, FloatArray
from pytest_npubench.verdict.noise_law import Nights, middle_and_spread
from pytest_npubench.verdict.observations import CaseEntries, Rule, rectangle
from pytest_npubench.verdict.suite_shift import MIN_CASES, SuiteShift, suite_shift

NUM_FIRST, NUM_LAST = 8, 24
"""Of a case's accepted sessions: the first, which creep has not reached, and the newest."""
USUAL_UNIT = 0.01
PARTS = ("reference", "later", "gone")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseNights:
    """The nights of one case by name: entries of processes, [R] each; the reference first, then later ones, and apart
    from them those of changes that are gone. is_disturbed: tonight is no evidence beside other nights."""

    case: str
    rule: Rule
    reference: Mapping[str, FloatArray]
    later: Mapping[str, FloatArray]
    gone: Mapping[str, FloatArray]
    current: FloatArray | None
    since: str | None
    is_disturbed: bool

    @property
    def names(self) -> list[str]:
        return [*self.reference, *self.later]


@dataclass(frozen=True, kw_only=True)
class NightTable:
    """reference: [C, K], later: [C, L] and gone: [C, G], entries of nights, to the left; current: [C, R], tonight's
    processes. NaN for none. reference_first: [C, K], of the first process of each night. *_processes: of how many
    processes an entry is the mean. units: [C], what an entry of 1 is in the rule's. shifts: by group what tonight did
    to all alike."""

    cases: tuple[CaseNights, ...]
    reference: FloatArray
    reference_first: FloatArray
    reference_processes: FloatArray
    later: FloatArray
    later_processes: FloatArray
    gone: FloatArray
    current: FloatArray
    units: FloatArray
    shifts: Mapping[str, SuiteShift | None]

    def shift_of(self, row: int) -> SuiteShift | None:
        return self.shifts[self.cases[row].rule.group]

    @cached_property
    def disturbed(self) -> BoolArray:
        return np.array([case.is_disturbed for case in self.cases])

    def nights(self, process_share: float, scatter: FloatArray) -> Nights:
        """Reference, later nights and tonight, each row's to the left. Tonight is no surer than `scatter`, [C], the
        variance between its processes relative to that of one. A change that was there before goes on without a night
        that was disturbed."""
        number = np.isfinite(self.current).sum(axis=1)
        processes = np.concatenate([self.reference_processes, self.later_processes, number[:, None]], axis=1)
        variance = relative_variance(processes, process_share)
        variance[:, -1] = np.maximum(variance[:, -1], scatter)
        goes_on = self.disturbed & np.array([case.since is not None and bool(case.later) for case in self.cases])
        tonight = np.where(goes_on, np.nan, self.tonight)
        entries = np.concatenate([self.reference, self.later, tonight[:, None]], axis=1)
        order = np.argsort(np.isnan(entries), axis=1, kind="stable")
        entries, variance = (np.take_along_axis(part, order, axis=1) for part in (entries, variance))
        return Nights(entries=entries, variance=variance)

    @cached_property
    def tonight(self) -> FloatArray:
        return mean_of(self.current)

    @property
    def fresh(self) -> FloatArray:
        """Returns the mean of the processes that measured it again, NaN for none."""
        return mean_of(self.current[:, 1:])


def mean_of(entries: FloatArray) -> FloatArray:
    """Averages each row, NaN where it has no entries."""
    number = np.isfinite(entries).sum(axis=1)
    return np.where(number > 0, np.nansum(entries, axis=1) / np.maximum(number, 1), np.nan)


def first_of(entries: FloatArray) -> FloatArray:
    """Takes the first of each row, whose entries are to the left, NaN where it has none."""
    return entries[:, 0] if entries.shape[1] else np.full(len(entries), np.nan)


def relative_variance(num_processes: FloatArray, process_share: float) -> FloatArray:
    """Returns the variance of a mean of processes, relative to one process; NaN counts as one."""
    return 1 - process_share + process_share / np.maximum(np.nan_to_num(num_processes, nan=1.0), 1.0)


def split(case: str, nights: CaseEntries, since: str | None, *, is_disturbed: bool) -> CaseNights:
    """Reference and later nights; sessions that cannot be used are not among the later ones, and neither are those
    that came before a change which is known: they are as the reference, and no part of the change."""
    accepted = {name: entries for name, entries in nights.accepted.items() if not isinstance(entries, str)}
    later, gone = (
        {name: entries for name, entries in part.items() if not isinstance(entries, str)}
        for part in (nights.later, nights.gone)
    )
    names = list(accepted)
    cut = names.index(since) if since in accepted else len(names)
    reference = names[:cut]
    if since in later:
        pending = list(later)
        later = {name: later[name] for name in pending[pending.index(since) :]}
    if len(reference) > NUM_FIRST + NUM_LAST:
        reference = reference[:NUM_FIRST] + reference[-NUM_LAST:]
    return CaseNights(
        case=case,
        rule=nights.rule,
        reference={name: accepted[name] for name in reference},
        later={**{name: accepted[name] for name in names[cut:]}, **later},
        gone=gone,
        current=None if isinstance(nights.current, str) else nights.current,
        since=since,
        is_disturbed=is_disturbed,
    )


def make_table(cases: Sequence[CaseNights]) -> NightTable:
    """Makes the table of cases of one scale with 2 reference nights or more each."""
    names = list(dict.fromkeys(name for case in cases for name in (*case.names, *case.gone)))
    column = {name: index for index, name in enumerate(names)}
    entries, first = np.full((2, len(cases), len(names)), np.nan)
    is_reference = np.zeros((len(cases), len(names)), dtype=np.bool_)
    for row, case in enumerate(cases):
        for part in (case.gone, case.reference, case.later):
            columns = [column[name] for name in part]
            entries[row, columns] = [one.sum() / len(one) for one in part.values()]
            first[row, columns] = [one[0] for one in part.values()]
        is_reference[row, [column[name] for name in case.reference]] = True
    current = rectangle([np.empty(0) if case.current is None else case.current for case in cases])
    if not current.shape[1]:
        current = np.full((len(cases), 1), np.nan)
    first -= entries
    shifts = {group: _take_off(rows, cases, entries, is_reference, current) for group, rows in _groups(cases).items()}
    first += entries
    units = _units(cases, np.where(is_reference, entries, np.nan))
    chosen = {part: [[column[name] for name in getattr(case, part)] for case in cases] for part in PARTS}
    counts = {
        part: rectangle([np.array([len(one) for one in getattr(case, part).values()], dtype=float) for case in cases])
        for part in chosen
    }
    rows = {
        part: rectangle([entries[row, columns] / units[row] for row, columns in enumerate(chosen[part])])
        for part in chosen
    }
    in_reference = chosen["reference"]
    return NightTable(
        cases=tuple(cases),
        reference=rows["reference"],
        reference_first=rectangle([first[row, columns] / units[row] for row, columns in enumerate(in_reference)]),
        reference_processes=counts["reference"],
        later=rows["later"],
        later_processes=counts["later"],
        gone=rows["gone"],
        current=current / units[:, None],
        units=units,
        shifts=shifts,
    )


def _groups(cases: Sequence[CaseNights]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for row, case in enumerate(cases):
        groups.setdefault(case.rule.group, []).append(row)
    return groups


def _take_off(
    rows: list[int], cases: Sequence[CaseNights], entries: FloatArray, is_reference: BoolArray, current: FloatArray
) -> SuiteShift | None:
    """Takes the shift of each night off a group's entries, in place, and returns that of tonight. A night that moved
    the suite stays as it was; cases that are changed already have no say."""
    steady = [row for row in rows if cases[row].since is None]
    if len(steady) < MIN_CASES:
        return None
    rule = cases[rows[0]].rule
    margin = rule.entry(rule.margin)
    reference = np.where(is_reference[steady], entries[steady], np.nan)
    shift = suite_shift(reference, current[steady, 0], margin)
    if shift is None:
        return None
    nights = shift.nights.copy()
    after = np.where(is_reference[steady], np.nan, entries[steady])
    for index in np.flatnonzero((np.isfinite(after).sum(axis=0) >= MIN_CASES) & (nights == 0)):
        later = suite_shift(reference, after[:, index], margin)
        if later is not None and not later.moved:
            nights[index] = later.tonight
    entries[rows] -= nights
    if not shift.moved:
        current[rows] -= shift.tonight
    return shift


def _units(cases: Sequence[CaseNights], reference: FloatArray) -> FloatArray:
    units = np.ones(len(cases))
    for rows in _groups(cases).values():
        rule = cases[rows[0]].rule
        if rule.scale == "difference":
            spread = float(np.median(middle_and_spread(reference[rows])[1]))
            units[rows] = spread / USUAL_UNIT
    return units
