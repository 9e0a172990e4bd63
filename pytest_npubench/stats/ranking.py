"""How well predicted times rank what was measured.

    regret = 1 - t(best) / t(chosen)        tau = (concordant - discordant pairs) / all pairs

t is measured, chosen is the least predicted. In throughput, 1 / t, the regret is the share that the choice gives up. If
every prediction is within e of what is measured, t(chosen)(1 - e) <= p(chosen) <= p(best) <= t(best)(1 + e), so the
regret is at most 2e / (1 + e). Kendall's tau (Kendall 1938): a pair that either side ties counts for neither.

Worked number: predicted 1, 2, 3 and measured 12, 10, 15: chosen is the first, regret 1 - 10 / 12 = 0.167; one of three
pairs is discordant, tau 1/3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import geometric_mean

RELATIVE_THROUGHPUT = "relative_throughput"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """chosen and best: the places of the least predicted and the least measured time. kendall_tau: None of one only."""

    chosen: int
    best: int
    regret: float
    kendall_tau: float | None

    @property
    def is_top1(self) -> bool:
        return self.chosen == self.best


def rank(predicted_s: Sequence[float], measured_s: Sequence[float]) -> Ranking:
    """Ranks choices by positive seconds, one prediction and one measurement for every choice."""
    places = range(len(predicted_s))
    chosen, best = min(places, key=predicted_s.__getitem__), min(places, key=measured_s.__getitem__)
    signs = [
        (predicted_s[left] - predicted_s[right]) * (measured_s[left] - measured_s[right])
        for left, right in combinations(places, 2)
    ]
    return Ranking(
        chosen=chosen,
        best=best,
        regret=1 - measured_s[best] / measured_s[chosen],
        kendall_tau=sum((sign > 0) - (sign < 0) for sign in signs) / len(signs) if signs else None,
    )


def largest_regret(error: float) -> float:
    """Returns the largest regret of choices whose predictions are within this relative error."""
    return 2 * error / (1 + error)


def relative_throughputs(rounds_s: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    """Returns the throughput of each choice relative to all, [num_choices][num_rounds]: the geometric mean of a round's
    seconds over all choices, over the choice's own. A round that is slow for all cancels."""
    means = [geometric_mean(row) for row in zip(*rounds_s, strict=True)]
    return [tuple(mean / own for mean, own in zip(means, choice, strict=True)) for choice in rounds_s]
