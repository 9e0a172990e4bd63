"""One scale's cases tonight: what alarms by this one night, what by the evidence of several, what is still changed.

The alarms of a run share a budget: by one night, 1 false alarm in 150 nights of the whole run, so calibrated
p < 1 / (150 C) for C judged cases; by the evidence over nights, 60 (C + 20) : 1, as if 20 more cases were judged: a few
cases tell little of the law. That is 1 alarm in 60 nights at most, and by simulation far fewer (benchmarks/gate.py).
Improvements have a budget of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.stats.checks import BoolArray, FloatArray
from pytest_npubench.stats.error import student_quantile
from pytest_npubench.stats.student_tail import log_density, upper_tail
from pytest_npubench.verdict.evidence import (
    PRIOR,
    Change,
    beginnings,
    change_for_worse,
    is_gone,
    lag_correlation,
    leaning,
    tempering_of,
)
from pytest_npubench.verdict.night_table import NightTable, first_of, relative_variance
from pytest_npubench.verdict.noise_law import LARGEST, Nights, NoiseLaw, counts, fit_law
from pytest_npubench.verdict.prediction import Reference, SuiteTail, fit_tail, refer

ONE_NIGHT, OVER_NIGHTS, MORE_CASES = 150, 60, 20
SUSPECT_P = 0.10
SUSPECT_EVIDENCE = 1.0  # e : 1
EQUIVALENCE_LIMIT = 0.03
COVERAGE = 0.975
POWER = 0.8
PRIOR_REPEATS, LARGEST_REPEAT, MOST_SHARE = 4.0, 4.0, 0.8
"""The share of the processes is drawn to 0 by 4 pseudo-repeats, is 0.8 at most, and no repeat counts for more than 4
times the variance of its case."""
LEANS_TOO_FAR = 3.5  # to tell of the suite's tail: an unproven change is no noise
MIN_LEFT = 3
DISAGREEING = 4.0  # times the variance of a case: two processes exceed it one time in 22


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One direction, sign 1 for the worse and -1 for the better; [C] each. one_night and over_nights say which cases
    alarm, log_odds is the evidence."""

    sign: int
    tail: SuiteTail
    p: FloatArray
    one_night: BoolArray
    unconfirmed: BoolArray
    log_odds: FloatArray
    over_nights: BoolArray
    first: NDArray[np.int_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A change as entries for the worse with its 95 % interval."""

    worse_by: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Tonight:
    """The cases of a table against their reference, C of them being judged in the whole run."""

    table: NightTable
    num_judged: int

    @cached_property
    def margins(self) -> FloatArray:
        return np.array([case.rule.entry(case.rule.margin) for case in self.table.cases]) / self.table.units

    @cached_property
    def changed_before(self) -> BoolArray:
        return np.array([case.since is not None for case in self.table.cases])

    @cached_property
    def measured(self) -> BoolArray:
        return np.isfinite(self.table.tonight)

    @cached_property
    def process_share(self) -> float:
        """Returns the share of a process's variance that is not the night's: from processes that measured once more,
        less the first, which was chosen for being slow. Each of them is held against the variance of its case."""
        repeats = [
            (row, entries[1:])
            for row, case in enumerate(self.table.cases)
            for entries in (*case.reference.values(), *case.later.values(), case.current)
            if entries is not None and len(entries) > 2
        ]
        if not repeats:
            return 0.0
        nights = Nights(entries=self.table.reference, variance=np.ones_like(self.table.reference))
        law = fit_law(nights)
        variance = refer(law, nights).scale_variance * self.table.units**2 * law.freedom / (law.freedom - 2)
        squares = sum(
            min(float(again.var(ddof=1) / variance[row]), LARGEST_REPEAT) * (len(again) - 1) for row, again in repeats
        )
        return min(squares / (sum(len(again) - 1 for _, again in repeats) + PRIOR_REPEATS), MOST_SHARE)

    @cached_property
    def reference(self) -> Reference:
        variance = relative_variance(self.table.reference_processes, self.process_share)
        nights = Nights(entries=self.table.reference, variance=variance)
        first = Nights(entries=self.table.reference_first, variance=np.ones_like(variance))
        return refer(fit_law(first), nights, self.table.reference_first)

    @cached_property
    def nights(self) -> Nights:
        return self.table.nights(self.process_share, self.scatter)

    @cached_property
    def gone(self) -> Nights:
        return Nights(entries=self.table.gone, variance=np.ones_like(self.table.gone))

    @cached_property
    def scatter(self) -> FloatArray:
        """Returns the variance between tonight's processes relative to that of one, where it is more than noise
        explains, else 0. Processes minutes apart that disagree so were measured on a machine whose speed was moving."""
        apart = self.table.current - self.table.tonight[:, None]
        freedom = np.maximum(np.isfinite(apart).sum(axis=1) - 1, 1)
        scatter = np.nansum(apart**2, axis=1) / freedom / self.reference.scale_variance
        return np.where(scatter > DISAGREEING, scatter, 0.0)

    def shown(self, sign: int) -> FloatArray:
        """Tonight's entry; where its processes disagree, what all of them show."""
        turned = sign * self.table.current
        least = sign * np.where(np.isfinite(turned), turned, np.inf).min(axis=1)
        return np.where(self.scatter > 0, least, self.table.tonight)

    @property
    def variance_of_tonight(self) -> FloatArray:
        """Returns the variance of a mean of processes, for tails that are light. Heavy ones come from what hits a case
        for a whole night, which hits all its processes: there the law of one process is asked."""
        mean = relative_variance(np.isfinite(self.table.current).sum(axis=1), self.process_share)
        return np.where(self.scatter > 0, 1.0, mean)

    @cached_property
    def tempering(self) -> float:
        return tempering_of(lag_correlation(self.reference))

    @property
    def log_alarm(self) -> float:
        return math.log(OVER_NIGHTS * (self.num_judged + MORE_CASES))

    @property
    def one_night_level(self) -> float:
        return 1 / (ONE_NIGHT * self.num_judged)

    @cached_property
    def slower(self) -> Side:
        return self._side(1)

    @cached_property
    def faster(self) -> Side:
        return self._side(-1)

    @cached_property
    def tells_noise(self) -> BoolArray:
        """Cases whose accepted nights tell the suite's tail: not those that stray twice the same way or lean."""
        reference = self.reference
        begins = beginnings(reference.nights, counts(reference.nights.entries))
        steady = ~self.changed_before
        for sign in (1, -1):
            steady &= reference.strays(sign).sum(axis=1) < 2
            steady &= leaning(reference.law, reference.nights.turned(sign), begins) < LEANS_TOO_FAR
        return steady if steady.any() else np.ones_like(steady)

    def _side(self, sign: int) -> Side:
        reference, table = self.reference, self.table
        left_out = reference.left_out[self.tells_noise]
        left_out = left_out if sign > 0 else 1 - left_out
        # what came and went is noise that the suite has: one night of each case, however long it was there
        noise = np.append(left_out, reference.p(first_of(table.gone), sign))
        tail = fit_tail(noise[np.isfinite(noise)])
        shown_by_all = self.shown(sign)
        variance = self.variance_of_tonight if tail.is_light else 1.0
        p = tail.calibrated(np.nan_to_num(reference.p(shown_by_all, sign, variance), nan=1.0))
        strayed = (reference.strays(1) | reference.strays(-1)).any(axis=1) | np.isfinite(table.gone).any(axis=1)
        rows = np.flatnonzero((p < 2 * self.one_night_level) & strayed)
        if len(rows):
            p[rows] = np.maximum(p[rows], reference.p_of_two_speeds(shown_by_all, rows, self.gone, sign))
        far = sign * (table.tonight - reference.level) > self.margins
        again = np.isfinite(table.fresh)
        shown = np.nan_to_num(reference.p(table.fresh, sign), nan=0.0) < SUSPECT_P
        shown &= ~again | (sign * (table.fresh - reference.level) > self.margins)
        low = self.measured & ~self.changed_before & (p < self.one_night_level) & far
        change = self._change(sign, reference.law.heavier(tail.excess))
        return Side(
            sign=sign,
            tail=tail,
            p=p,
            one_night=low & shown,
            unconfirmed=low & ~shown,
            log_odds=change.log_evidence,
            over_nights=self._beyond_margin(change, sign) & (change.log_evidence >= self.log_alarm),
            first=change.first,
        )

    def _change(self, sign: int, law: NoiseLaw) -> Change:
        number = counts(self.reference.nights.entries)
        change = Change(log_evidence=np.full(len(number), -np.inf), first=np.zeros(len(number), dtype=np.int_))
        rows = np.flatnonzero(self.measured & ~self.changed_before & ~self.table.disturbed)
        if len(rows):
            nights, gone = (part.of(rows).turned(sign) for part in (self.nights, self.gone))
            part_change = change_for_worse(law, nights, gone, number[rows], self.tempering)
            change.log_evidence[rows], change.first[rows] = part_change.log_evidence, part_change.first
        return change

    def _beyond_margin(self, change: Change, sign: int) -> BoolArray:
        beyond = np.zeros(len(self.margins), dtype=np.bool_)
        for row in np.flatnonzero(change.log_evidence >= self.log_alarm).tolist():
            estimate, _ = self.since(row, int(change.first[row]))
            beyond[row] = sign * estimate.worse_by > self.margins[row] * self.table.units[row]
        return beyond

    def since(self, row: int, first: int) -> tuple[Estimate, int]:
        """Returns the mean of the nights of a case from one column of `nights` on, against those before, and how
        many."""
        entries, variance = self.nights.entries[row], self.nights.variance[row]
        before = Nights(entries=entries[None, :first], variance=variance[None, :first])
        after = (np.arange(len(entries)) >= first) & np.isfinite(entries)
        reference = refer(self.reference.law, before)
        return self._estimate(reference, 0, row, entries[after], variance[after]), int(after.sum())

    def of_tonight(self, row: int) -> Estimate:
        return self._estimate(self.reference, row, row, self.table.tonight[row : row + 1], np.ones(1))

    def _estimate(
        self, reference: Reference, index: int, row: int, entries: FloatArray, variance: FloatArray
    ) -> Estimate:
        weights = 1 / variance
        worse_by = float((entries * weights).sum() / weights.sum() - reference.level[index])
        error = math.sqrt(float(reference.scale_variance[index] / weights.sum() + reference.level_variance[index]))
        half = float(student_quantile(COVERAGE, reference.law.freedom)) * error
        unit = float(self.table.units[row])
        return Estimate(worse_by=worse_by * unit, low=(worse_by - half) * unit, high=(worse_by + half) * unit)

    def course(self, row: int) -> tuple[int, bool]:
        """Returns the direction of a change that a case had before tonight, and whether it is gone."""
        first = int(counts(self.reference.nights.entries)[row])
        present = np.isfinite(self.nights.entries[row])
        entries, variance = self.nights.entries[row, present][first:], self.nights.variance[row, present][first:]
        sign = 1 if entries[: max(len(entries) - 1, 1)].mean() >= self.reference.level[row] else -1
        since = Nights(entries=sign * entries[None], variance=variance[None])
        law = self.reference.law.heavier((self.slower if sign > 0 else self.faster).tail.excess)
        return sign, is_gone(law, self.reference.of(row, sign), since, self.log_alarm, self.tempering)

    @cached_property
    def unchanged(self) -> BoolArray:
        """Whether the 95 % interval of tonight, or of the last three nights with tonight itself, lies within 3 % either
        way, wherever two speeds of the case put it, and as the case stands, with the night's shift."""
        reference, num_cases = self.reference, len(self.table.cases)
        limit = np.array([case.rule.entry(EQUIVALENCE_LIMIT) for case in self.table.cases]) / self.table.units
        strays = reference.strays(1) | reference.strays(-1)
        speeds = np.where(strays, reference.nights.entries - reference.level[:, None], 0.0)
        shifts = [self.table.shift_of(row) for row in range(num_cases)]
        shift = np.array([one.tonight if one and not one.moved else 0.0 for one in shifts]) / self.table.units
        lowest = np.minimum(np.minimum(shift, -speeds.max(axis=1)), 0.0)
        highest = np.maximum(np.maximum(shift, -speeds.min(axis=1)), 0.0)
        within = np.zeros(num_cases, dtype=np.bool_)
        for difference, error in (self._mean_of_last(1), self._mean_of_last(3)):
            half = float(student_quantile(COVERAGE, reference.law.freedom)) * error
            within |= (difference - half + lowest > -limit) & (difference + half + highest < limit)
        return within & self.measured & (np.abs(np.nan_to_num(self.table.tonight - reference.level)) < limit)

    def _mean_of_last(self, num_nights: int) -> tuple[FloatArray, FloatArray]:
        """Returns the difference of the mean of the last nights, tonight's included, from a reference that does without
        them, and its error: infinite where fewer than 3 other nights are left, or a change is going on."""
        number = counts(self.nights.entries).astype(np.int_)
        last = np.take_along_axis(self.nights.entries, (number[:, None] - 1 - np.arange(num_nights)), axis=1)
        column = np.arange(self.reference.nights.entries.shape[1])
        in_reference = np.isfinite(self.reference.nights.entries) & (column >= (number - num_nights)[:, None])
        reference = self.reference.without(in_reference)
        usable = (counts(reference.nights.entries) >= MIN_LEFT) & self.measured & ~self.changed_before
        error = np.sqrt(reference.scale_variance / num_nights + reference.level_variance)
        return last.mean(axis=1) - reference.level, np.where(usable, error, LARGEST)

    @cached_property
    def seen_tonight(self) -> FloatArray:
        """Returns the change for the worse that would alarm tonight in 4 of 5 runs, as entries."""
        reference = self.reference
        wanted = self.slower.tail.p_at(self.one_night_level)
        weights = reference.weights.sum(axis=2)  # [C, S]
        scales = np.sqrt(reference.law.scales**2 + reference.level_variance[:, None])
        low, high = np.full(len(weights), 1e-9), np.full(len(weights), LARGEST)
        for _ in range(30):
            middle = np.sqrt(low * high)
            p = (weights * upper_tail(middle[:, None] / scales, reference.law.freedom)).sum(axis=1)
            low, high = np.where(p > wanted, middle, low), np.where(p > wanted, high, middle)
        room = student_quantile(POWER, reference.law.freedom) * np.sqrt(reference.scale_variance)
        return np.asarray((np.maximum(high, self.margins) + room) * self.table.units)

    @cached_property
    def seen_soon(self) -> FloatArray:
        """Returns the change for the worse that the evidence of three nights would show in 4 of 5 runs, as entries:
        nights are drawn once for all cases, and a case's errors are its scale and that of its level."""
        law = self.reference.law.heavier(self.slower.tail.excess)
        drawn = np.random.default_rng(0).standard_t(law.freedom, (400, 3))
        sizes = np.geomspace(0.5, 100.0, 60)
        log_ratios = log_density(np.square(drawn[:, :, None]), law.freedom)
        log_ratios = log_ratios - log_density(np.square(drawn[:, :, None] + sizes), law.freedom)
        shown = np.maximum.accumulate(np.quantile(log_ratios.sum(axis=1), 1 - POWER, axis=0))
        needed = self.log_alarm / self.tempering - math.log(3 * PRIOR.max())  # three sizes fit a change
        in_scales = float(np.interp(needed, shown, sizes))
        errors = np.sqrt(self.reference.scale_variance + 3 * self.reference.level_variance)
        return np.asarray(np.maximum(in_scales * errors, self.margins) * self.table.units)

    @cached_property
    def suspects(self) -> BoolArray:
        """What deserves a second look: a first process as slow as one night in ten and beyond the margin, or a case of
        which the nights lean to a change."""
        first, reference = self.table.current[:, 0], self.reference
        far = np.nan_to_num(first - reference.level) > self.margins
        slow = np.nan_to_num(reference.p(first), nan=1.0) < SUSPECT_P
        leans = (self.slower.log_odds > SUSPECT_EVIDENCE) & ~self.changed_before
        return np.asarray(self.measured & ((slow & far) | leans))
