"""The rules under comparison: which cases alarm tonight. Ours, its variants, and those of other tools.

Each takes what its tool would have: the accepted nights' log latencies and tonight's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.stats.checks import BoolArray, FloatArray
from pytest_npubench.verdict.observations import BETTER_QUARTILE, ObservationTable, Rule, repeats_of
from pytest_npubench.verdict.paired import weigh_pairs
from pytest_npubench.verdict.weighing import weigh

LIMIT = 0.05  # of pytest-benchmark's rules
NUM_RESAMPLES = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """One simulated night. accepted: medians [C, K] of earlier nights; anchor: [C, A] of nights before those; before:
    the last night's samples [C, n]; tonight: samples [C, R, n], of which a rule may use the first process alone; pairs:
    medians [C, P, 2] of A and B."""

    accepted: FloatArray
    anchor: FloatArray
    before: FloatArray
    tonight: FloatArray
    pairs: FloatArray

    def only(self, cases: NDArray[np.int_]) -> Observed:
        """The same night as seen by a run of these cases alone."""
        return Observed(**{field.name: getattr(self, field.name)[cases] for field in fields(self)})


AlarmRule = Callable[[Observed], BoolArray]


def mean_5_percent(seen: Observed) -> BoolArray:
    """pytest-benchmark --benchmark-compare-fail=mean:5%: mean seconds against the run before."""
    return np.asarray(np.exp(seen.tonight[:, 0]).mean(axis=1) > (1 + LIMIT) * np.exp(seen.before).mean(axis=1))


def median_5_percent(seen: Observed) -> BoolArray:
    """pytest-benchmark --benchmark-compare-fail=median:5%."""
    return np.asarray(np.median(seen.tonight[:, 0], axis=1) - np.median(seen.before, axis=1) > np.log1p(LIMIT))


def mann_whitney(seen: Observed) -> BoolArray:
    """Two-sided Mann-Whitney p < 0.01 against the run before, and its median more than 3 % above."""
    from scipy import stats

    p = stats.mannwhitneyu(seen.tonight[:, 0], seen.before, axis=1, method="asymptotic").pvalue
    slower = np.median(seen.tonight[:, 0], axis=1) - np.median(seen.before, axis=1) > np.log1p(0.03)
    return np.asarray((p < 0.01) & slower)


def bootstrap(seen: Observed) -> BoolArray:
    """95 % bootstrap interval of the ratio of medians against the run before, wholly above 1.01."""
    rng = np.random.default_rng(0)
    num_samples = seen.before.shape[1]
    drawn = rng.integers(num_samples, size=(2, NUM_RESAMPLES, num_samples))
    ratios = np.median(seen.tonight[:, 0][:, drawn[0]], axis=2) - np.median(seen.before[:, drawn[1]], axis=2)
    return np.asarray(np.quantile(ratios, 0.025, axis=1) > np.log1p(0.01))


def gate_once(seen: Observed) -> BoolArray:
    """The gate on one process, nothing measured again."""
    return weigh(table_of(seen.accepted, entries_of(seen.tonight[:, :1])), Rule(), seen.anchor).regressed


def gate(seen: Observed) -> BoolArray:
    """The gate as it runs: suspects are measured in fresh processes; the verdict is on all processes together, and the
    fresh ones alone must be suspicious too."""
    entries = entries_of(seen.tonight)
    first = weigh(table_of(seen.accepted, entries[:, :1]), Rule(), seen.anchor)
    is_first = np.arange(entries.shape[1]) == 0
    again = np.where(first.suspect[:, None] | is_first, entries, np.nan)
    fresh = np.where(first.suspect[:, None], entries[:, 1:], np.nan)
    fresh[:, 0] = np.where(first.suspect, fresh[:, 0], entries[:, 0])
    together, alone = (weigh(table_of(seen.accepted, current), Rule(), seen.anchor) for current in (again, fresh))
    return together.regressed & alone.suspect


def interleaved_pairs(seen: Observed) -> BoolArray:
    """`npubench ab`: fresh processes of both environments in turn, judged as pairs."""
    return weigh_pairs(seen.pairs[..., 1] - seen.pairs[..., 0], Rule()).regressed


OURS: dict[str, AlarmRule] = {
    "our gate, no second look": gate_once,
    "our gate": gate,
    "our A/B, 5 interleaved pairs": interleaved_pairs,
}
RULES: dict[str, AlarmRule] = {
    "pytest-benchmark mean:5%": mean_5_percent,
    "pytest-benchmark median:5%": median_5_percent,
    "Mann-Whitney p<.01 and >3%": mann_whitney,
    "bootstrap of the ratio >1%": bootstrap,
    **OURS,
}
JOINT = frozenset(OURS)  # the others look at one case at a time


def entries_of(samples: FloatArray) -> FloatArray:
    """Samples in log latency [..., S] to entries [...], as verdict.entries makes them of times."""
    return np.asarray(np.quantile(samples, BETTER_QUARTILE["lower"], axis=-1))


def table_of(accepted: FloatArray, current: FloatArray) -> ObservationTable:
    """The gate's table from entries: accepted [C, K], current [C, R]."""
    repeats, freedom = repeats_of(current)
    return ObservationTable(
        cases=tuple(map(str, range(len(accepted)))),
        baseline=accepted,
        current=current,
        num_processes=np.ones(len(accepted)),
        repeats=repeats,
        repeats_freedom=freedom,
    )
