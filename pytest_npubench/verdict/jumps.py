"""How likely it is that a case jumps tonight that never did: a clock that comes up slow, a neighbour on the device.

No case shows its first jump in its own history, so its fellows must tell: the chance that a night shows something new
is estimated by the share of nights that showed something once (Good 1953, 10.1093/biomet/40.3-4.237). With n1 cases
that jumped in one night and n2 that did in two, and N nights of cases that never jumped,

    rate = max(n1, (n1 + n2) / 2) / N

(n2 steadies n1, which is small: where rates of jumping are spread evenly, both have the same mean). A case's p-value is
then at least the chance of a jump that explains its difference, whatever Student's tail says:

    p >= rate * mean over the jumps seen of P(T >= (difference - jump) / standard error)

Worked number: n1 = 2, n2 = 2 of 300 cases, 240 of them without jumps in 20 nights: rate 2 / 4800 = 4.2e-4. A case that
is worse by just such a jump has p >= 2.1e-4, which is no alarm among 300 cases; one that is worse by twice as much has
a p of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_npubench.stats.checks import BoolArray, FloatArray
from pytest_npubench.stats.margin_test import one_sided_p

MAX_RARE = 2  # nights of a rare jump


@dataclass(frozen=True, slots=True, kw_only=True)
class Jumps:
    """Jumps a night of a case that never jumped, and the sizes of the rare ones seen, [J], as entries' differences."""

    rate: float
    sizes: FloatArray

    def lowest_p(self, difference: FloatArray, error: FloatArray, freedom: FloatArray) -> FloatArray:
        """What the p-value of a case that never jumped cannot be below, [C] as all arguments."""
        if not self.sizes.size:
            return np.zeros(len(difference))
        tails = one_sided_p(difference[:, None], self.sizes, error[:, None], freedom[:, None])
        return np.asarray(self.rate * tails.mean(axis=1))


NO_JUMPS = Jumps(rate=0.0, sizes=np.empty(0))


def rare_jumps(entries: FloatArray, slower: BoolArray) -> Jumps:
    """From baseline entries [C, K] and which of them are of the slower mode (modes.slower_mode)."""
    present = np.isfinite(entries)
    faster = present & ~slower
    num_slow, has_two = slower.sum(axis=1), faster.any(axis=1)
    num_nights = int(present[~has_two].sum())
    rare = has_two & (num_slow <= MAX_RARE)
    if not rare.any() or not num_nights:
        return NO_JUMPS
    once = float((rare & (num_slow == 1)).sum())
    level = np.where(faster, entries, 0.0).sum(axis=1) / np.maximum(faster.sum(axis=1), 1)
    sizes = (entries - level[:, None])[slower & rare[:, None]]
    return Jumps(rate=min(1.0, max(once, rare.sum() / MAX_RARE) / num_nights), sizes=sizes)
