"""Two environments measured in turn, A B B A, in fresh processes: drift falls on both, and a pair's difference is free
of the night.

A case's difference is the mean over its pairs of (entry of B - entry of A). Its standard error is s / sqrt(P), s the
deviation between the P pairs, moderated over the cases; the tests are those of the gate.

Worked number: 5 pairs, B slower by 4, 5, 6, 5, 5 %: mean 5 %, s = 0.7 %, error 0.32 %: 12.6 errors beyond 1 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.margin_test import one_sided_p
from pytest_npubench.stats.moderation import fit_prior, moderated
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
from pytest_npubench.verdict.suite_shift import SuiteShift, common_shift
from pytest_npubench.verdict.weighing import Difference, Weighed
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
            found = _differences(measured, rule)
        except UnusableError as error:
            verdicts[case] = Verdict(kind=VerdictKind.INVALID, reason=str(error))
            continue
        if len(found) < MIN_PAIRS:
            verdicts[case] = Verdict(kind=VerdictKind.INCONCLUSIVE, reason=too_few_pairs(len(found), MIN_PAIRS))
        else:
            differences[case] = found
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
    """The evidence of differences B - A, [C, P]."""
    num_pairs = np.isfinite(entries).sum(axis=1)
    margin = rule.entry(rule.margin)
    shift = common_shift(entries, margin)
    mirrored = common_shift(-entries, margin)
    return Weighed(
        rule=rule,
        shift=shift,
        taken_off=False,
        slower=_difference(entries, num_pairs, shift, margin),
        faster=_difference(-entries, num_pairs, mirrored, margin),
    )


def _difference(
    entries: FloatArray, num_pairs: NDArray[np.int_], shift: SuiteShift | None, margin: float
) -> Difference:
    """What disturbs a pair for all cases is taken out before variances are compared, and put back into the error."""
    common = shift.nights if shift else np.zeros(entries.shape[1])
    variance, freedom = np.nanvar(entries - common, axis=1, ddof=1), num_pairs - 1.0
    prior = fit_prior(variance, freedom)
    if prior is not None and shift is None:  # too few cases to tell what they share: no surer than one case's own pairs
        prior = replace(prior, learnt_from=float(freedom.max()))
    steadied, degrees = moderated(variance, freedom, prior)
    shared = float(common.var(ddof=1))
    total = steadied + shared
    # Welch-Satterthwaite: the degrees of freedom of a sum of two variances
    scale = np.where(total > 0, total, 1.0)
    inverse = (steadied / scale) ** 2 / degrees + (shared / scale) ** 2 / freedom
    degrees = np.where(total > 0, 1 / np.where(inverse > 0, inverse, 1.0), degrees)
    error, difference = np.sqrt(total / num_pairs), np.nanmean(entries, axis=1)
    return Difference(
        difference=difference,
        deviation=np.sqrt(total),
        error=error,
        freedom=degrees,
        p=one_sided_p(difference, margin, error, degrees),
        num_old=np.full(len(entries), MANY),  # A is 0 by definition: nothing of the error is its own
        num_new=num_pairs.astype(np.float64),
    )
