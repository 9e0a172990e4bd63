"""B against A from the differences of either side: Student's tests of each case, its interval, what it could have seen.

For what is measured on purpose, in pairs or in several sessions a side (paired, comparison.two_samples). Alarms are
those of Benjamini and Hochberg over the cases given, with an interval beyond the margin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.detectable import minimum_detectable_effect
from pytest_npubench.stats.margin_test import interval, one_sided_p
from pytest_npubench.stats.multiple_testing import adjusted_p_values
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.observations import Rule
from pytest_npubench.verdict.suite_shift import SuiteShift
from pytest_npubench.verdict.wording import change_with_interval, counted, percent, suite_words

EQUIVALENCE_LIMIT = 0.03
EQUIVALENCE_LEVEL = 0.05
COVERAGE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """B - A for the worse, [C] each: its estimate, the standard deviation of a session, standard error, degrees of
    freedom, p-value of being within the margin, and how many sessions either side has."""

    difference: FloatArray
    deviation: FloatArray
    error: FloatArray
    freedom: FloatArray
    p: FloatArray
    num_old: FloatArray
    num_new: FloatArray


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """Differences for the worse and, turned round, for the better, with what all cases did alike."""

    rule: Rule
    shift: SuiteShift | None
    taken_off: bool
    slower: Difference
    faster: Difference

    def verdicts(self) -> Iterator[Verdict]:
        """One verdict a case, in the order given."""
        low, high = interval(self.slower.difference, self.slower.error, self.slower.freedom, COVERAGE)
        for row, kind in enumerate(self._kinds(low, high)):
            estimate, ends = float(self.slower.difference[row]), (float(low[row]), float(high[row]))
            mde = self.rule.fraction(float(self._mde[row]))
            yield Verdict(
                kind=kind,
                reason="; ".join(self._reason(row, kind, ends, mde)),
                ratio=self.rule.ratio(estimate),
                interval=self.rule.ratios(*ends),
                mde=mde,
            )

    def _reason(self, row: int, kind: VerdictKind, ends: tuple[float, float], mde: float) -> Iterator[str]:
        estimate = float(self.slower.difference[row])
        yield change_with_interval(self.rule, estimate, ends, f"in B, over {counted(self.slower.num_new[row], 'pair')}")
        if kind in (VerdictKind.REGRESSED, VerdictKind.IMPROVED):
            p = (self._adjusted_slower if estimate >= 0 else self._adjusted_faster)[row]
            yield f"margin {percent(self.rule.margin)}, p {p:.2g} over {counted(len(self._adjusted_slower), 'case')}"
        else:
            yield f"could have seen {percent(mde)}"
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
        return adjusted_p_values(self.slower.p)

    @cached_property
    def _adjusted_faster(self) -> FloatArray:
        return adjusted_p_values(self.faster.p)

    def _equivalence_p(self) -> FloatArray:
        """TOST: both a change for the worse and one for the better beyond the limit are ruled out.

        With the shift taken off the case must also be equivalent as it stands: a suite that moved by 5 % holds no case
        that is unchanged.
        """
        limit = self.rule.entry(EQUIVALENCE_LIMIT)
        shifts = (0.0, self.shift.tonight) if self.shift and self.taken_off else (0.0,)
        largest: FloatArray = np.max(
            [
                one_sided_p(-(side.difference + sign * shift), -limit, side.error, side.freedom)
                for shift in shifts
                for side, sign in ((self.slower, 1), (self.faster, -1))
            ],
            axis=0,
        )
        return largest

    @cached_property
    def _mde(self) -> FloatArray:
        """What would be found in 4 of 5 runs, were no other case worse: Benjamini-Hochberg's first step, q / m."""
        return minimum_detectable_effect(
            margin=self.rule.entry(self.rule.margin),
            standard_deviation=self.slower.deviation,
            num_sessions=self.slower.num_old,
            num_processes=self.slower.num_new,
            night_share=0.0,
            degrees_of_freedom=self.slower.freedom,
            level=min(self.rule.q / len(self.slower.p), (1 - COVERAGE) / 2),
        )
