"""Seconds of iterations that only decode, where they are affine in the keys that are read.

    seconds = base(rows, activations) + context_s x context tokens + window_s x window tokens

Base and slopes are read off the cost itself, so that there is one formula of each.
"""

from __future__ import annotations

from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepCost, StepWork

MANY_TOKENS = 1_000_000


class DecodeCost:
    """Of a cost with `is_affine`."""

    def __init__(self, cost: StepCost, num_layers: int) -> None:
        self._cost, self._num_layers = cost, num_layers
        self.bases_s = _Bases(self)
        base_s = self.seconds(1, 0, 0, 0)
        self.context_s = (self.seconds(1, 0, MANY_TOKENS, 0) - base_s) / MANY_TOKENS
        self.window_s = (self.seconds(1, 0, 0, MANY_TOKENS) - base_s) / MANY_TOKENS

    def seconds(self, rows: int, activations: int, context: int, window: int) -> float:
        passes = [PassWork(0, self._num_layers, (), activations)]
        return self._cost.seconds(StepWork(passes, rows, context, window, rows))


class _Bases(dict[tuple[int, int], float]):
    """Seconds of one iteration that reads no keys, by rows and activations, as they are asked for."""

    def __init__(self, cost: DecodeCost) -> None:
        self._cost = cost

    def __missing__(self, key: tuple[int, int]) -> float:
        self[key] = seconds = self._cost.seconds(*key, 0, 0)
        return seconds
