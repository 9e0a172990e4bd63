"""B against A from the differences of either side: Student's tests of each case, its interval, what it could have seen.

For what is measured on purpose, in pairs or in several sessions a side (paired, comparison.two_samples). Alarms are
those of Benjamini and Hochberg over the cases given, with an interval beyond the margin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from pytest_npubench.plain_text import counted
from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.detectable import minimum_detectable_effect
from pytest_npubench.stats.margin_test import interval, one_sided_p
from pytest_npubench.stats.moderation import fit_prior, moderated
from pytest_npubench.stats.multiple_testing import adjusted_p_values
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.observations import Rule
from pytest_npubench.verdict.suite_shift import SuiteShift
from pytest_npubench.verdict.wording import change_with_interval, percent, suite_words, visible

EQUIVALENCE_LIMIT = 0.03
EQUIVALENCE_LEVEL = 0.05
COVERAGE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """B - A for the worse, [C] each: its estimate, the standard deviation of a session, standard error, degrees of
    freedom, and how many sessions either side has."""

    estimate: FloatArray
    deviation: FloatArray
    error: FloatArray
    freedom: FloatArray
    num_old: FloatArray
    num_new: FloatArray

    def p(self, limit: float, sign: int = 1) -> FloatArray:
        """Returns the chance of being worse by no more than `limit`; better, with the sign -1."""
        return one_sided_p(sign * self.estimate, limit, self.error, self.freedom)


def difference_of(
    estimate: FloatArray,
    variance: FloatArray,
    freedom: FloatArray,
    *,
    shared: float,
    independent: bool,
    num_old: FloatArray,
    num_new: FloatArray,
) -> Difference:
    """Weighs a difference by the variance of a session, moderated over the cases, and the variance that all cases
    share, which is not in it. Where that is not out of it the variances agree by right, and no case is surer than by
    its own sessions."""
    prior = fit_prior(variance, freedom)
    if prior is not None and not independent:
        prior = replace(prior, learnt_from=float(freedom.max()))
    steadied, degrees = moderated(variance, freedom, prior)
    total = steadied + shared
    # Welch-Satterthwaite: the degrees of freedom of a sum of two variances
    scale = np.where(total > 0, total, 1.0)
    inverse = (steadied / scale) ** 2 / degrees + (shared / scale) ** 2 / freedom
    return Difference(
        estimate=estimate,
        deviation=np.sqrt(total),
        error=np.sqrt(total * (1 / num_old + 1 / num_new)),
        freedom=np.where(total > 0, 1 / np.where(inverse > 0, inverse, 1.0), degrees),
        num_old=num_old,
        num_new=num_new,
    )


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """Differences of cases for the worse, with what all of them did alike."""

    rule: Rule
    shift: SuiteShift | None
    taken_off: bool
    difference: Difference

    def verdicts(self) -> Iterator[Verdict]:
        """One verdict a case, in the order given."""
        low, high = interval(self.difference.estimate, self.difference.error, self.difference.freedom, COVERAGE)
        for row, kind in enumerate(self._kinds(low, high)):
            estimate, ends = float(self.difference.estimate[row]), (float(low[row]), float(high[row]))
            mde = self.rule.fraction(float(self._mde[row]))
            yield Verdict(
                kind=kind,
                reason="; ".join(self._reason(row, kind, ends, mde)),
                ratio=self.rule.ratio(estimate),
                interval=self.rule.ratios(*ends),
                mde=mde,
            )

    def _reason(self, row: int, kind: VerdictKind, ends: tuple[float, float], mde: float) -> Iterator[str]:
        estimate = float(self.difference.estimate[row])
        yield change_with_interval(
            self.rule, estimate, ends, f"in B, over {counted(self.difference.num_new[row], 'pair')}"
        )
        if kind in (VerdictKind.REGRESSED, VerdictKind.IMPROVED):
            p = (self._adjusted_slower if estimate >= 0 else self._adjusted_faster)[row]
            yield f"margin {percent(self.rule.margin)}, p {p:.2g} over {counted(len(self._adjusted_slower), 'case')}"
        else:
            yield f"could have seen {visible(mde)}"
        if self.shift is not None:
            yield suite_words(self.rule, self.shift, self.taken_off)

    def _kinds(self, low: FloatArray, high: FloatArray) -> list[VerdictKind]:
        margin = self.rule.entry(self.rule.margin)
        conditions = [
            (self._adjusted_slower <= self.rule.q) & (low > margin),
            (self._adjusted_faster <= self.rule.q) & (high < -margin),
            self._equivalence_p() <= EQUIVALENCE_LEVEL,
        ]
        kinds = (VerdictKind.REGRESSED, VerdictKind.IMPROVED, VerdictKind.UNCHANGED, VerdictKind.INCONCLUSIVE)
        return [kinds[index] for index in np.select(conditions, [0, 1, 2], default=3).tolist()]

    @cached_property
    def _adjusted_slower(self) -> FloatArray:
        return adjusted_p_values(self.difference.p(self.rule.entry(self.rule.margin)))

    @cached_property
    def _adjusted_faster(self) -> FloatArray:
        return adjusted_p_values(self.difference.p(self.rule.entry(self.rule.margin), -1))

    def _equivalence_p(self) -> FloatArray:
        """TOST: both a change for the worse and one for the better beyond the limit are ruled out.

        With the shift taken off the case must also be equivalent as it stands: a suite that moved by 5 % holds no case
        that is unchanged.
        """
        limit = self.rule.entry(EQUIVALENCE_LIMIT)
        shifts = (0.0, self.shift.tonight) if self.shift and self.taken_off else (0.0,)
        moved = [replace(self.difference, estimate=self.difference.estimate + shift) for shift in shifts]
        return np.max([one.p(-limit, -sign) for one in moved for sign in (1, -1)], axis=0)  # type: ignore[no-any-return]

    @cached_property
    def _mde(self) -> FloatArray:
        """What would be found in 4 of 5 runs, were no other case worse: Benjamini-Hochberg's first step, q / m."""
        return minimum_detectable_effect(
            margin=self.rule.entry(self.rule.margin),
            standard_deviation=self.difference.deviation,
            num_sessions=self.difference.num_old,
            num_processes=self.difference.num_new,
            night_share=0.0,
            degrees_of_freedom=self.difference.freedom,
            level=min(self.rule.q / len(self.difference.estimate), (1 - COVERAGE) / 2),
        )
