"""The reason of a verdict in words that a person can act on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npubench.verdict import Verdict, VerdictKind

if TYPE_CHECKING:
    from pytest_npubench.verdict.observations import Rule
    from pytest_npubench.verdict.suite_shift import SuiteShift


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One case's figures as fractions for the worse; p is adjusted for all cases; creep is that against the anchor;
    disagree is how far apart tonight's processes are, None where no further than sessions are."""

    kind: VerdictKind
    worse_by: float
    low: float
    high: float
    mde: float
    p: float
    num_cases: int
    num_sessions: int
    num_processes: int
    disagree: float | None
    paired: bool
    two_modes: bool
    creep: float | None
    suite: float | None
    taken_off: bool


def reason(found: Finding, rule: Rule) -> str:
    """For example: "5.1 % worse than 20 accepted sessions (95 % interval 3.2 to 7.0 %), margin 1 %, p 0.0004 ..."."""
    parts = [f"{change_text(found.worse_by)} {_than(found)} (95 % interval {_span(found.low, found.high)})"]
    if found.creep is not None:
        parts.append(f"{change_text(found.creep)} than the anchor sessions: it crept")
    if found.kind in (VerdictKind.REGRESSED, VerdictKind.IMPROVED):
        parts.append(f"margin {percent(rule.margin)}, p {found.p:.2g} over {_count(found.num_cases, 'case')}")
    elif found.disagree is None:
        parts.append(f"could have seen {percent(found.mde)}")
    if found.num_processes > 1 and not found.paired:
        apart = "" if found.disagree is None else f" that disagree by {percent(found.disagree)}"
        parts.append(f"measured in {found.num_processes} processes{apart}")
    if found.suite is not None:
        moved = f"the suite as a whole is {change_text(found.suite)}"
        parts.append(f"{moved}, which is subtracted" if found.taken_off else moved)
    return "; ".join(parts)


def too_few(num_sessions: int, wanted: int) -> str:
    return f"{_count(num_sessions, 'accepted session')} on this stack; want {wanted} or more"


def suite_verdicts(shift: SuiteShift | None, rule: Rule) -> dict[str, Verdict]:
    """The verdict of what all cases of the rule's group did alike, by the group's name; none where nothing tells."""
    if shift is None:
        return {}
    kind = VerdictKind.UNCHANGED
    if shift.moved:
        kind = VerdictKind.REGRESSED if shift.tonight > 0 else VerdictKind.IMPROVED
    low, high = (rule.fraction(end) for end in shift.interval)
    text = f"{_count(shift.num_cases, 'case')} together are {change_text(rule.fraction(shift.tonight))}"
    usual = "" if shift.moved else ", no more than accepted nights differ"
    verdict = Verdict(
        kind=kind,
        reason=f"{text} (95 % interval {_span(low, high)}){usual}",
        ratio=rule.ratio(shift.tonight),
        interval=rule.ratios(*shift.interval),
    )
    return {rule.group: verdict}


def too_few_pairs(num_pairs: int, wanted: int) -> str:
    return f"{_count(num_pairs, 'pair')}; want {wanted} or more"


def _than(found: Finding) -> str:
    if found.paired:
        return f"in B, over {_count(found.num_sessions, 'pair')}"
    sessions = f"{_count(found.num_sessions, 'accepted session')}"
    if not found.two_modes:
        return f"than {sessions}"
    mode = "slower" if found.worse_by >= 0 else "faster"
    return f"than the {mode} of two modes of {sessions}"


def change_text(worse_by: float) -> str:
    return f"{percent(abs(worse_by))} {'worse' if worse_by >= 0 else 'better'}"


def _span(low: float, high: float) -> str:
    return f"{low * 100:+.1f} to {high * 100:+.1f} %"


def percent(value: float) -> str:
    return f"{value * 100:.2g} %" if abs(value) < 0.0995 else f"{value * 100:.0f} %"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
