"""Prompt tokens on their way through the model, a layer group an iteration (Layered Prefill, section 4.2).

Layered and hybrid prefill differ only in the rows that set off together: whole prompts, or a chunk of them. Nobody sets
off while others are on their way. Worked example: 1,000 tokens at 512 an iteration are ceil(1000 / 512) = 2 groups; in
a model of 4 layers the first iteration runs them through layers 0 and 1, the second through 2 and 3, and their first
tokens come at its end. All other layers, in both iterations, only decode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from pytest_npubench.errors import ConfigError
from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, PrefillRow


@dataclass(slots=True)
class _Flight:
    rows: tuple[PrefillRow, ...]
    groups: tuple[LayerGroup, ...]
    next_group: int = 0


class LayeredFlight:
    """One flight at a time over a batch. `num_layer_groups` None: as many as the rows' tokens ask for."""

    def __init__(self, batch: Batch, *, num_layer_groups: int | None, tokens_per_iteration: int) -> None:
        self._batch = batch
        self._num_layer_groups = num_layer_groups
        self._tokens_per_iteration = tokens_per_iteration
        self._flight: _Flight | None = None

    def plan(self, choose_rows: Callable[[], tuple[PrefillRow, ...]]) -> IterationPlan | None:
        """Returns the iteration that takes the flight a group further; where none is on its way, `choose_rows` may set
        off."""
        flight = self._current() or self._set_off(choose_rows())
        if flight is None:
            return self._batch.plan()
        group = flight.groups[flight.next_group]
        flight.next_group += 1
        return self._batch.plan(flight.rows, group)

    def _current(self) -> _Flight | None:
        """Returns the flight without those who were preempted or aborted; None: it has landed, or nobody is left in
        it."""
        flight = self._flight
        if flight is None or flight.next_group == len(flight.groups):
            return None
        if len(flight.rows) != len(self._batch.in_flight):
            flight.rows = tuple(row for row in flight.rows if row.request in self._batch.in_flight)
        return flight if flight.rows else None

    def _set_off(self, rows: tuple[PrefillRow, ...]) -> _Flight | None:
        self._flight = _Flight(rows, self._groups(rows)) if rows else None
        return self._flight

    def _groups(self, rows: tuple[PrefillRow, ...]) -> tuple[LayerGroup, ...]:
        num_layers = self._batch.num_layers
        num_tokens = sum(row.num_tokens for row in rows)
        wanted = self._num_layer_groups or num_groups_for(num_tokens, self._tokens_per_iteration, num_layers)
        return layer_groups(num_layers, wanted)


@cache
def layer_groups(num_layers: int, num_groups: int) -> tuple[LayerGroup, ...]:
    """Contiguous groups of nearly one size, in order: sizes differ by at most one, the larger ones first.

    Worked number: 10 layers in 4 groups are 3 + 3 + 2 + 2. Raises ConfigError unless 1 <= num_groups <= num_layers.
    """
    if not 1 <= num_groups <= num_layers:
        raise ConfigError(f"num_layer_groups is {num_groups}; want 1 to {num_layers}, the number of layers")
    size, num_larger = divmod(num_layers, num_groups)
    starts = [index * size + min(index, num_larger) for index in range(num_groups + 1)]
    return tuple(LayerGroup(first, stop) for first, stop in pairwise(starts))


def num_groups_for(num_tokens: int, tokens_per_iteration: int, num_layers: int) -> int:
    """How many groups a prompt of L tokens gets (Layered Prefill, section 4.4, with the one limit that the paper need
    not state: a group has at least one layer):

        N(L) = min(num_layers, max(1, ceil(L / tokens_per_iteration)))

    which for 8,192 tokens, 512 an iteration and 48 layers is 16.
    """
    return min(num_layers, max(1, -(-num_tokens // tokens_per_iteration)))
