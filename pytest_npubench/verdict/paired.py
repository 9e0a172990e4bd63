"""Two environments measured in turn, A B B A, in fresh processes: drift falls on both, and a pair's difference is free
of the night.

A case's difference is the mean over its pairs of (entry of B - entry of A). Its standard error is s / sqrt(P), s the
deviation between the P pairs, moderated over the cases; the tests are those of the gate.

Worked number: 5 pairs, B slower by 4, 5, 6, 5, 5 %: mean 5 %, s = 0.7 %, error 0.32 %: 12.6 errors beyond 1 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.judging import Judged, statistics_failed
from pytest_npubench.verdict.observations import (
    Better,
    Process,
    Rule,
    Scale,
    UnusableError,
    rectangle,
    session_entries,
)
from pytest_npubench.verdict.suite_shift import common_shift
from pytest_npubench.verdict.weighing import Weighed, difference_of
from pytest_npubench.verdict.wording import suite_verdicts, too_few_pairs

MIN_PAIRS = 3
MANY = 1e12
Pairs = Sequence[tuple[Process, Process]]


def judge_pairs(
    pairs: Mapping[str, Pairs],
    *,
    margin: float = 0.01,
    q: float = 0.05,
    better: Better = "lower",
    scale: Scale = "ratio",
) -> Judged:
    """Verdicts of B against A for each case, judged jointly; pairs: case -> (samples of A, samples of B) a pair.

    Verdict kinds, ratio (B / A), interval and mde as in `judge`; below 3 pairs a case is inconclusive. There are no
    suspects: more evidence is more pairs. Raises ConfigError for a margin, q, better or scale that cannot be used.
    """
    rule = Rule(margin=margin, q=q, better=better, scale=scale)
    verdicts: dict[str, Verdict] = {}
    differences: dict[str, FloatArray] = {}
    for case, measured in pairs.items():
        try:
            entries = _differences(measured, rule)
        except UnusableError as error:
            verdicts[case] = Verdict(kind=VerdictKind.INVALID, reason=str(error))
            continue
        if len(entries) < MIN_PAIRS:
            verdicts[case] = Verdict(kind=VerdictKind.INCONCLUSIVE, reason=too_few_pairs(len(entries), MIN_PAIRS))
        else:
            differences[case] = entries
    shift = None
    if differences:
        try:
            with np.errstate(all="raise", under="ignore"):
                weighed = weigh_pairs(rectangle(differences.values()), rule)
                verdicts |= zip(differences, weighed.verdicts(), strict=True)
            shift = weighed.shift
        except (ArithmeticError, ValueError, MeasurementError) as error:  # an error in the statistics is no verdict
            verdicts |= statistics_failed(differences, error)
    ordered = {case: verdicts[case] for case in pairs}
    return Judged(verdicts=ordered, suites=suite_verdicts(shift, rule))


def _differences(measured: Pairs, rule: Rule) -> FloatArray:
    """Entry of B - entry of A of each pair, [P], P may be 0. Raises UnusableError."""
    try:
        sides = list(zip(*((first, second) for first, second in measured), strict=True))
    except (TypeError, ValueError):
        raise UnusableError("want a list of pairs, each the samples of A and those of B") from None
    if not sides:
        return np.empty(0)
    first, second = (session_entries(side, rule.scale, rule.better) for side in sides)
    return np.asarray(second - first)


def weigh_pairs(entries: FloatArray, rule: Rule) -> Weighed:
    """Returns the evidence of differences B - A, [C, P]. What disturbs a pair for all cases is taken out before
    variances are compared, and put back into the error."""
    num_pairs = np.isfinite(entries).sum(axis=1).astype(np.float64)
    shift = common_shift(entries, rule.entry(rule.margin))
    common = shift.nights if shift else np.zeros(entries.shape[1])
    difference = difference_of(
        np.nanmean(entries, axis=1),
        np.nanvar(entries - common, axis=1, ddof=1),
        num_pairs - 1.0,
        shared=float(common.var(ddof=1)),
        independent=shift is not None,
        num_old=np.full(len(entries), MANY),  # A is 0 by definition: nothing of the error is its own
        num_new=num_pairs,
    )
    return Weighed(rule=rule, shift=shift, taken_off=False, difference=difference)
