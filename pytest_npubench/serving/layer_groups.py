"""Cutting a model into contiguous layer groups of nearly one size.

Sizes sum to the number of layers and differ by at most one, the larger ones first. Worked number: 10 layers in 4 groups
are 3 + 3 + 2 + 2. How many groups a prompt of L tokens gets (Layered Prefill, section 4.4, with the one limit that the
paper need not state: a group has at least one layer):

    N(L) = min(num_layers, max(1, ceil(L / tokens_per_iteration)))

which for 8,192 tokens, 512 an iteration and 48 layers is 16.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from pytest_npubench.errors import ConfigError
from pytest_npubench.iteration import LayerGroup


@cache
def layer_groups(num_layers: int, num_groups: int) -> tuple[LayerGroup, ...]:
    """In order. Raises ConfigError unless 1 <= num_groups <= num_layers."""
    if not 1 <= num_groups <= num_layers:
        raise ConfigError(f"num_layer_groups is {num_groups}; want 1 to {num_layers}, the number of layers")
    size, num_larger = divmod(num_layers, num_groups)
    starts = [index * size + min(index, num_larger) for index in range(num_groups + 1)]
    return tuple(LayerGroup(first, stop) for first, stop in pairwise(starts))


def num_groups_for(num_tokens: int, tokens_per_iteration: int, num_layers: int) -> int:
    """N(L) above."""
    return min(num_layers, max(1, -(-num_tokens // tokens_per_iteration)))
