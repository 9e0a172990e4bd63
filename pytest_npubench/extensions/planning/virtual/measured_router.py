"""How many experts a batch activates, from iterations that were seen: a model's own router instead of a synthetic one.

Of an iteration with d decode rows, and p prompt tokens in m of the L layers, the log has the experts over all layers:

    activations = (L - m) c(d) + m c(d + p)

with c(n) the experts of one layer that n tokens activate together. c rises from c(0) = 0 between knots, by non-negative
least squares over all iterations; beyond the most tokens that were seen it stays.

Worked example: 8 layers activate 8 experts for one decode row and 40 for a prompt of 64 tokens: c(1) = 1, c(64) = 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pytest_npubench.extensions.planning.virtual.calibration import Array
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.serving.log import IterationLog

KNOT_RATIO = 1.4


class MeasuredRouter:
    """knots: tokens, and the experts of one layer that they activate, both rising from 0."""

    def __init__(self, knots: Sequence[tuple[float, float]]) -> None:
        self.knots = tuple(knots)
        self._tokens, self._experts = np.array(self.knots).T

    @classmethod
    def of(cls, logs: Sequence[IterationLog], num_layers: int) -> MeasuredRouter:
        from scipy.optimize import nnls

        decode, prompt, layers, activations = (
            np.concatenate([np.array(getattr(log, name), dtype=float) for log in logs])
            for name in ("num_decode", "num_prefill_tokens", "num_prefill_layers", "expert_activations")
        )
        layers = np.where(prompt > 0, layers, 0.0)
        knots = _knots(float((decode + prompt).max()))
        # of each step between two knots what a number of tokens has climbed
        each = (num_layers - layers)[:, None] * climbed(knots, decode)
        each += layers[:, None] * climbed(knots, decode + prompt)
        steps, _ = nnls(each, activations)
        experts = np.concatenate([[0.0], np.cumsum(steps)]).round(3)
        return cls(list(zip(knots.tolist(), experts.tolist(), strict=True)))

    def activations(self, iteration: int, first: int, stop: int, num_rows: int, prefill: Sequence[PrefillRow]) -> int:
        """Experts of layers [first, stop) that the decode rows and the prefill rows activate together, as
        router.Router answers; the same in every iteration."""
        tokens = num_rows + sum(row.num_tokens for row in prefill)
        return round((stop - first) * float(np.interp(tokens, self._tokens, self._experts)))


def _knots(most: float) -> Array:
    """0, 1 and on, each by KNOT_RATIO more, up to the most tokens."""
    shares = [0.0, 1.0]
    while shares[-1] < most:
        shares.append(min(most, max(shares[-1] + 1, round(shares[-1] * KNOT_RATIO))))
    return np.array(shares)


def climbed(knots: Array, tokens: Array) -> Array:
    """Of each step from one knot to the next the part that lies below the tokens, [tokens, steps]."""
    return np.stack([np.clip((tokens - low) / (high - low), 0.0, 1.0) for low, high in pairwise(knots)], axis=1)
