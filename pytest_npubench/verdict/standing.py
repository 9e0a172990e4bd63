"""How a case stands tonight: steady, changed since some night, still so, or as before again."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.noise_law import counts
from pytest_npubench.verdict.prediction import SMALLEST_P
from pytest_npubench.verdict.tonight import MORE_CASES, ONE_NIGHT, OVER_NIGHTS, Estimate, Side, Tonight
from pytest_npubench.verdict.wording import LARGEST_LOG, TONIGHT, Finding, reason

MOST_JUDGED = 10**9
KINDS = {1: VerdictKind.REGRESSED, -1: VerdictKind.IMPROVED}


def verdict_of(tonight: Tonight, row: int) -> Verdict:
    case = tonight.table.cases[row]
    if case.since is not None:
        sign, gone = tonight.course(row)
        first = int(counts(tonight.reference.nights.entries)[row])
        estimate, num_nights = tonight.since(row, first)
        if not gone and sign * estimate.worse_by > case.rule.entry(case.rule.margin):
            return _verdict(tonight, row, KINDS[sign], estimate, case.since, num_nights)
        return _verdict(tonight, row, _steady(tonight, row), tonight.of_tonight(row), case.since, num_nights - 1, sign)
    for side in (tonight.slower, tonight.faster):
        if side.over_nights[row]:
            first = int(side.first[row])
            estimate, num_nights = tonight.since(row, first)
            names = [*case.names, TONIGHT]
            verdict = _verdict(tonight, row, KINDS[side.sign], estimate, names[first], num_nights)
            return replace(verdict, alarms_among=_alarms_among(side, row))
        if side.one_night[row]:
            verdict = _verdict(tonight, row, KINDS[side.sign], tonight.of_tonight(row), TONIGHT, 1)
            return replace(verdict, alarms_among=_alarms_among(side, row))
    return _verdict(tonight, row, _steady(tonight, row), tonight.of_tonight(row), None, None)


def _alarms_among(side: Side, row: int) -> int:
    """Says among how many judged metrics at most the case would still alarm."""
    odds = math.exp(min(float(side.log_odds[row]), LARGEST_LOG)) if side.over_nights[row] else 0.0
    over_nights = odds / OVER_NIGHTS - MORE_CASES
    one_night = 1 / (ONE_NIGHT * max(float(side.p[row]), SMALLEST_P)) if side.one_night[row] else 0.0
    return int(min(max(over_nights, one_night), MOST_JUDGED))


def _steady(tonight: Tonight, row: int) -> VerdictKind:
    doubtful = tonight.slower.unconfirmed[row] or tonight.faster.unconfirmed[row]
    return VerdictKind.UNCHANGED if tonight.unchanged[row] and not doubtful else VerdictKind.INCONCLUSIVE


def _verdict(
    tonight: Tonight,
    row: int,
    kind: VerdictKind,
    estimate: Estimate,
    since: str | None,
    num_nights: int | None,
    gone: int = 0,
) -> Verdict:
    """`gone` is the direction of a change that is no more."""
    case = tonight.table.cases[row]
    side: Side = tonight.faster if kind is VerdictKind.IMPROVED else tonight.slower
    processes = tonight.table.current[row, np.isfinite(tonight.table.current[row])]
    apart = float(np.ptp(processes) * tonight.table.units[row])
    finding = Finding(
        kind=kind,
        worse_by=estimate.worse_by,
        ends=(estimate.low, estimate.high),
        seen_tonight=float(tonight.seen_tonight[row]),
        seen_soon=float(tonight.seen_soon[row]),
        odds=(float(side.log_odds[row]), tonight.log_alarm),
        since=since,
        num_nights=num_nights or 1,
        num_judged=tonight.num_judged,
        num_accepted=len(case.reference),
        num_processes=len(processes),
        disagree=apart if tonight.scatter[row] > 0 else None,
        p=float(side.p[row]),
        p_wanted=tonight.one_night_level,
        was_better=gone < 0,
        unconfirmed=bool(tonight.slower.unconfirmed[row]),
        is_disturbed=case.is_disturbed,
    )
    return Verdict(
        kind=kind,
        reason=reason(finding, case.rule, tonight.table.shift_of(row)),
        ratio=case.rule.ratio(estimate.worse_by),
        interval=case.rule.ratios(estimate.low, estimate.high),
        mde=case.rule.fraction(finding.seen_tonight),
        since=since,
        num_nights=num_nights,
    )
