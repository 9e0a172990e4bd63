"""The reason of a verdict in words that a person can act on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_npubench.plain_text import counted
from pytest_npubench.verdict import Verdict, VerdictKind

if TYPE_CHECKING:
    from pytest_npubench.verdict.observations import Rule
    from pytest_npubench.verdict.suite_shift import SuiteShift

FACTOR = 2.0  # from which on a change is written as one
TOO_WIDE = 1.0  # an interval from which nothing can be told
TONIGHT = "tonight"
DOUBTFUL = 3.0  # 20 : 1
LARGEST_LOG = 700.0
SMALLEST = 5e-5  # a change that anybody is told of


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One case's figures as entries for the worse: the change and its 95 % interval, over the nights since it began
    where it did. seen_tonight and seen_soon are the changes that one night and three would show; odds are the
    logarithms of the evidence and of that which alarms; p is the chance of such a night, p_wanted that which alarms.
    `since` of a case that did not change is that of a change which is gone, which was for the better or not, and
    num_nights how long it was there. disagree: how far apart tonight's processes are, None where no further than noise
    puts them."""

    kind: VerdictKind
    worse_by: float
    ends: tuple[float, float]
    seen_tonight: float
    seen_soon: float
    odds: tuple[float, float]
    since: str | None
    num_nights: int
    num_judged: int
    num_accepted: int
    num_processes: int
    disagree: float | None
    p: float
    p_wanted: float
    was_better: bool
    unconfirmed: bool
    is_disturbed: bool


def reason(finding: Finding, rule: Rule, shift: SuiteShift | None) -> str:
    """For example: "5.1 % worse since 2026-11-20 (3 sessions, 95 % interval 3.9 to 6.2 %); evidence ..."."""
    return "; ".join(_parts(finding, rule, shift))


def _parts(finding: Finding, rule: Rule, shift: SuiteShift | None) -> Iterator[str]:
    changed = finding.kind in (VerdictKind.REGRESSED, VerdictKind.IMPROVED)
    if finding.since is not None and not changed:
        what = f"the improvement of {finding.since}" if finding.was_better else f"the regression of {finding.since}"
        yield f"{what} is gone after {counted(finding.num_nights, 'session')}, which stay out of the baseline"
    if finding.since is None or finding.since == TONIGHT or not changed:
        where = f"than {counted(finding.num_accepted, 'accepted session')}"
    else:
        where = f"since {finding.since}, {counted(finding.num_nights, 'session')}"
    yield change_with_interval(rule, finding.worse_by, finding.ends, where)
    if changed:
        yield from _proof(finding)
    else:
        soon = min(finding.seen_soon, finding.seen_tonight)
        could = [_size(rule, seen) for seen in (finding.seen_tonight, soon)]
        later = " or within three" if could[0] == could[1] else f", {could[1]} within three"
        yield f"could have seen {could[0]} in this session{later}"
        evidence, wanted = finding.odds
        if evidence > DOUBTFUL and finding.kind is VerdictKind.INCONCLUSIVE:
            yield f"in doubt: evidence {_odds(evidence)} that it became worse, {_odds(wanted)} is needed"
    if finding.unconfirmed:
        yield "not confirmed: the fresh processes do not show it"
    if finding.num_processes > 1:
        apart = "" if finding.disagree is None else f" that disagree by {percent(rule.fraction(finding.disagree))}"
        yield f"measured in {finding.num_processes} processes{apart}"
    if finding.is_disturbed:
        yield "something else used the device for a part of this session, which is no evidence beside others"
    if shift is not None:
        yield suite_words(rule, shift, not shift.moved)


def _proof(finding: Finding) -> Iterator[str]:
    evidence, wanted = finding.odds
    of = counted(finding.num_judged, "metric")
    if finding.since == TONIGHT:
        once, enough = (_two_digits(1 / max(p, 1e-12)) for p in (finding.p, finding.p_wanted))
        yield f"chance alone does so once in {once} sessions, once in {enough} is needed for {of}"
    elif evidence >= wanted:
        yield f"evidence {_odds(evidence)} that it changed, {_odds(wanted)} is needed for {of}"


def _odds(log_evidence: float) -> str:
    return f"{_two_digits(math.exp(min(log_evidence, LARGEST_LOG)))} : 1"


def _two_digits(number: float) -> str:
    """They are all that such a number is good for."""
    if number > 1e9:
        return "more than 1,000,000,000"
    digits = max(len(str(int(number))) - 2, 0)
    return f"{round(number, -digits):,.0f}"


def too_few(num_sessions: int, wanted: int) -> str:
    return f"{counted(num_sessions, 'accepted session')} on this stack; want {wanted} or more"


def suite_verdicts(shift: SuiteShift | None, rule: Rule) -> dict[str, Verdict]:
    """Returns the verdict of what all cases of the rule's group did alike, by the group's name; none where nothing
    tells."""
    if shift is None:
        return {}
    kind = VerdictKind.UNCHANGED
    if shift.moved:
        kind = VerdictKind.REGRESSED if shift.tonight > 0 else VerdictKind.IMPROVED
    text = change_with_interval(rule, shift.tonight, shift.interval, "")
    usual = "" if shift.moved else ", no more than accepted sessions differ"
    verdict = Verdict(
        kind=kind,
        reason=f"{counted(shift.num_cases, 'case')} together are {text}{usual}",
        ratio=rule.ratio(shift.tonight),
        interval=rule.ratios(*shift.interval),
    )
    return {rule.group: verdict}


def suite_words(rule: Rule, shift: SuiteShift, taken_off: bool) -> str:
    moved = f"the suite as a whole is {change_text(rule.fraction(shift.tonight))}"
    return f"{moved}, which is subtracted" if taken_off else moved


def too_few_pairs(num_pairs: int, wanted: int) -> str:
    return f"{counted(num_pairs, 'pair')}; want {wanted} or more"


def change_with_interval(rule: Rule, entry: float, ends: tuple[float, float], where: str) -> str:
    """Returns a difference of entries, such as "5.1 % worse than 20 accepted sessions (95 % interval +3.2 to +7.0
    %)"."""
    where = f" {where}" if where else ""
    is_one_way = min(ends) * max(ends) > 0
    if _is_factor(rule, entry) and is_one_way:
        times = math.exp(min(abs(entry), LARGEST_LOG))
        span = sorted(math.exp(min(max(end * math.copysign(1, entry), -LARGEST_LOG), LARGEST_LOG)) for end in ends)
        way = "worse" if entry > 0 else "better"
        return f"{_factor(times)} times {way}{where} (95 % interval {_factor(span[0])} to {_factor(span[1])} times)"
    change, low, high = (rule.fraction(one) for one in (entry, *ends))
    if high - low > TOO_WIDE or (_is_factor(rule, entry) and not is_one_way):
        return f"{change_text(change)}{where}, or not: its 95 % interval is more than 100 % wide and cannot tell"
    return f"{change_text(change)}{where} (95 % interval {_span(low, high)})"


def _factor(times: float) -> str:
    """ "3.98" and "2,106"."""
    return f"{times:,.0f}" if 100 <= times < 1e6 else f"{times:.3g}"


def change_text(worse_by: float) -> str:
    return f"{percent(abs(worse_by))} {'worse' if worse_by > -SMALLEST else 'better'}"


def _is_factor(rule: Rule, entry: float) -> bool:
    return rule.scale == "ratio" and abs(entry) > math.log(FACTOR)


def _size(rule: Rule, entry: float) -> str:
    return "nothing below x2" if _is_factor(rule, entry) else percent(rule.fraction(entry))


def visible(fraction: float) -> str:
    """Returns a change that could have been seen; of one beyond x2 nobody needs the figure."""
    return "nothing below x2" if fraction > FACTOR - 1 else percent(fraction)


def _span(low: float, high: float) -> str:
    low, high = (round(100 * end, 1) + 0.0 for end in (low, high))  # of -0.0 it makes 0.0
    return f"{low:+.1f} to {high:+.1f} %"


def percent(value: float) -> str:
    if abs(value) < SMALLEST:
        return "0 %"
    return f"{value * 100:.2g} %" if abs(value) < 0.0995 else f"{value * 100:.0f} %"
