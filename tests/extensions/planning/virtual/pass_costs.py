"""One pass of a cost model, its seconds by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pytest_npubench.extensions.planning.virtual.cost import CostModel
from pytest_npubench.serving.iteration import PrefillRow


class PassCost(NamedTuple):
    shared_s: float
    attention_s: float
    experts_s: float
    moved_s: float
    links_s: float
    fixed_s: float

    @property
    def total_s(self) -> float:
        return sum(self)


def pass_cost(
    costs: CostModel,
    first: int,
    stop: int,
    *,
    decode_rows: int,
    context_tokens: float,
    window_tokens: float,
    prefill: Sequence[PrefillRow],
    activations: int,
    expert_rows: float = 1.0,
) -> PassCost:
    windowed = len([layer for layer in range(first, stop) if costs.window is not None and layer % 2 == 0])
    layers = stop - first, windowed
    return PassCost(
        *costs.layers_s(*layers, decode_rows, context_tokens, window_tokens, prefill, activations, expert_rows)
    )
