"""Prompts on their way through the layers: a layer group an iteration, nobody joins before they are through.

Worked example: 1,000 tokens at 512 an iteration in a model of 5 layers are ceil(1000 / 512) = 2 groups of 3 + 2 layers.
The first iteration runs the prompts through layers [0, 3), the second through [3, 5), and their first tokens come at
its end (Layered Prefill, section 4.2 and 4.4).

Requests have vLLM's ids. The rule is that of our own schedulers, which the tests hold it against.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from pytest_npubench.extensions.vllm.layered.settings import LayeredSettings
from pytest_npubench.serving.iteration import LayerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightStage:
    """What one iteration does with the flight: `requests` run through `group`, all others through all layers."""

    group: LayerGroup
    num_layers: int
    requests: tuple[str, ...]

    @property
    def is_last(self) -> bool:
        return self.group.stop == self.num_layers

    @property
    def is_whole(self) -> bool:
        """One group of all layers: an iteration as vLLM runs it."""
        return self.group.first == 0 and self.is_last


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """Tokens by request that set off together, and the groups they go through."""

    tokens: Mapping[str, int]
    groups: tuple[LayerGroup, ...]
    next_group: int = 0

    @property
    def num_tokens(self) -> int:
        return sum(self.tokens.values())

    @property
    def stage(self) -> FlightStage:
        return FlightStage(
            group=self.groups[self.next_group], num_layers=self.groups[-1].stop, requests=tuple(self.tokens)
        )

    def among(self, requests: Collection[str]) -> Flight | None:
        """Returns the flight without requests that were preempted, ended or aborted; None where none is left."""
        left = {request: count for request, count in self.tokens.items() if request in requests}
        return replace(self, tokens=left) if left else None

    def after_stage(self) -> Flight | None:
        """None: the last layer is behind them."""
        return None if self.stage.is_last else replace(self, next_group=self.next_group + 1)


def set_off(
    tokens: Mapping[str, int], num_layers: int, settings: LayeredSettings, *, whole: bool = False
) -> Flight | None:
    """Returns a flight of these tokens; None without any. `whole`: through all layers in one iteration."""
    if not tokens:
        return None
    num_groups = 1 if whole else _num_groups(sum(tokens.values()), num_layers, settings)
    return Flight(tokens=dict(tokens), groups=_layer_groups(num_layers, num_groups))


def _num_groups(num_tokens: int, num_layers: int, settings: LayeredSettings) -> int:
    """N(L) of the settings' docstring; a number that was asked for, as far as there are layers."""
    wanted = settings.num_layer_groups or -(-num_tokens // settings.tokens_per_iteration)
    return min(num_layers, max(1, wanted))


def _layer_groups(num_layers: int, num_groups: int) -> tuple[LayerGroup, ...]:
    """Contiguous groups whose sizes differ by at most one, the larger ones first."""
    size, num_larger = divmod(num_layers, num_groups)
    starts = [index * size + min(index, num_larger) for index in range(num_groups + 1)]
    return tuple(LayerGroup(first, stop) for first, stop in pairwise(starts))
