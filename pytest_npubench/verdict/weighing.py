"""From evidence to verdicts: the two one-sided tests of each case, its interval and what it could have detected."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pytest_npubench.stats.checks import BoolArray, FloatArray
from pytest_npubench.stats.detectable import minimum_detectable_effect
from pytest_npubench.stats.margin_test import interval, one_sided_p
from pytest_npubench.stats.multiple_testing import adjusted_p_values
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.creep import creep_p
from pytest_npubench.verdict.evidence import Evidence, night_shift, without_shift, worse
from pytest_npubench.verdict.observations import ObservationTable, Rule
from pytest_npubench.verdict.suite_shift import SuiteShift
from pytest_npubench.verdict.wording import Finding, reason

EQUIVALENCE_LIMIT = 0.03
EQUIVALENCE_LEVEL = 0.05
COVERAGE = 0.95
SUSPECT_LEVEL = 0.10


@dataclass(frozen=True, kw_only=True)
class Weighed:
    """Evidence in both directions over one table, the night's shift and, where there is an anchor, that of creep."""

    table: ObservationTable
    rule: Rule
    shift: SuiteShift | None
    taken_off: bool
    slower: Evidence
    faster: Evidence
    creep_p: FloatArray
    creep: FloatArray
    paired: bool = False

    def verdicts(self) -> Iterator[Verdict]:
        """One verdict a case, in the table's order."""
        low, middle, high = self._interval
        mde = self._mde()
        for row, kind in enumerate(self._kinds()):
            adjusted = self._adjusted_slower if middle[row] >= 0 else self._adjusted_faster
            finding = Finding(
                kind=kind,
                worse_by=self.rule.fraction(float(middle[row])),
                low=self.rule.fraction(float(low[row])),
                high=self.rule.fraction(float(high[row])),
                mde=self.rule.fraction(float(mde[row])),
                p=float(adjusted[row]),
                num_cases=len(self.table.cases),
                num_sessions=int(np.isfinite(self.table.baseline[row]).sum()),
                num_processes=int(np.isfinite(self.table.current[row]).sum()),
                disagree=self.rule.fraction(float(np.ptp(self._processes(row)))) if self._disagree[row] else None,
                paired=self.paired,
                two_modes=bool(self.slower.num_modes[row] > 1 or self.faster.num_modes[row] > 1),
                creep=self.rule.fraction(float(self.creep[row])) if self._crept[row] else None,
                suite=self.rule.fraction(self.shift.tonight) if self.shift else None,
                taken_off=self.taken_off,
            )
            yield Verdict(
                kind=kind,
                reason=reason(finding, self.rule),
                ratio=self.rule.ratio(float(middle[row])),
                interval=self.rule.ratios(float(low[row]), float(high[row])),
                mde=finding.mde,
            )

    @cached_property
    def regressed(self) -> BoolArray:
        """By Benjamini-Hochberg and with an interval beyond the margin, or crept away from the anchor."""
        low, _, _ = self._interval
        return np.asarray(((self._adjusted_slower <= self.rule.q) & (low > self._margin)) | self._crept)

    @cached_property
    def improved(self) -> BoolArray:
        _, _, high = self._interval
        return np.asarray((self._adjusted_faster <= self.rule.q) & (high < -self._margin))

    @property
    def _disagree(self) -> BoolArray:
        return np.asarray((self.slower.excess > 0) | (self.faster.excess > 0))

    def _processes(self, row: int) -> FloatArray:
        entries = self.table.current[row]
        return np.asarray(entries[np.isfinite(entries)])

    @property
    def suspect(self) -> BoolArray:
        """What deserves a second look before it alarms: nothing else can."""
        level = max(SUSPECT_LEVEL, self.rule.q)
        return np.asarray((self.slower.p < level) | (self.creep_p < level))

    def _kinds(self) -> list[VerdictKind]:
        conditions = [self.regressed, self.improved, self._equivalence_p() <= EQUIVALENCE_LEVEL]
        chosen = np.select(conditions, [0, 1, 2], default=3).tolist()
        kinds = (VerdictKind.REGRESSED, VerdictKind.IMPROVED, VerdictKind.UNCHANGED, VerdictKind.INCONCLUSIVE)
        return [kinds[index] for index in chosen]

    @property
    def _margin(self) -> float:
        return self.rule.entry(self.rule.margin)

    @cached_property
    def _adjusted_slower(self) -> FloatArray:
        return adjusted_p_values(self.slower.p)

    @cached_property
    def _adjusted_faster(self) -> FloatArray:
        return adjusted_p_values(self.faster.p)

    @cached_property
    def _crept(self) -> BoolArray:
        return adjusted_p_values(self.creep_p) <= self.rule.q

    @cached_property
    def _interval(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Low end, estimate and high end for the worse; between two modes the interval reaches over both."""
        up, down = self.slower, self.faster
        up_low, up_high = interval(up.difference, up.error, up.freedom, COVERAGE)
        down_low, down_high = interval(-down.difference, down.error, down.freedom, COVERAGE)
        above, below = up.difference > 0, down.difference > 0
        low, high = np.where(below, down_low, up_low), np.where(above, up_high, down_high)
        between = (up.difference - down.difference) / 2
        middle = np.where(above, up.difference, np.where(below, -down.difference, between))
        return low, middle, high

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

    def _mde(self) -> FloatArray:
        """What this gate would find in 4 of 5 runs, were no other case worse: Benjamini-Hochberg's first step, q / m.

        A case in its faster mode must first make up the way to its slower one; where jumps come so often that one of
        them would not alarm, a case that never jumped must be worse than the largest jump.
        """
        level = min(self.rule.q / len(self.table.cases), (1 - COVERAGE) / 2)
        gap = np.maximum(-(self.slower.difference + self.faster.difference), 0.0)
        found = self._detectable(self._margin + gap, level)
        jumps = self.slower.jumps
        if jumps.rate > level:
            beyond = self._detectable(np.full(len(found), jumps.sizes.max()), level / jumps.rate)
            found = np.where(self.slower.num_modes > 1, found, np.maximum(found, beyond))
        return found

    def _detectable(self, margin: FloatArray, level: float) -> FloatArray:
        processes = np.isfinite(self.table.current).sum(axis=1) / self.table.num_processes
        return minimum_detectable_effect(
            margin=margin,
            standard_deviation=self.slower.deviation,
            num_sessions=self.slower.num_sessions,
            num_processes=np.maximum(processes, 1.0),
            night_share=1 - self.slower.process_share,
            degrees_of_freedom=self.slower.freedom,
            level=level,
        )


def weigh(table: ObservationTable, rule: Rule, anchor: FloatArray | None = None) -> Weighed:
    """The evidence of a table whose cases all have 3 sessions or more; anchor: entries [C, A]."""
    margin = rule.entry(rule.margin)
    shift = night_shift(table, margin)
    inner = without_shift(table, shift)
    taken_off = inner is not table
    anchor = np.empty((len(table.cases), 0)) if anchor is None else anchor
    crept, creep = creep_p(inner, anchor, margin, float(shift.nights.var()) if shift else 0.0)
    return Weighed(
        table=table,
        rule=rule,
        shift=shift,
        taken_off=taken_off,
        slower=worse(inner, margin, independent=taken_off),
        faster=worse(inner.mirrored(), margin, independent=taken_off),
        creep_p=crept,
        creep=creep,
    )
