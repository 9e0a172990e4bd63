"""Random legal plans, and a recount of what they leave behind that adds up every token of every layer."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow


@dataclass
class Recount:
    """kv[request][layer]: tokens whose keys and values that layer has; hidden[request]: tokens between two layers."""

    num_layers: int
    kv: dict[int, list[int]] = field(default_factory=dict)
    hidden: dict[int, int] = field(default_factory=dict)

    def drop(self, request: int) -> None:
        self.kv.pop(request, None)
        self.hidden.pop(request, None)

    def run(self, plan: IterationPlan) -> None:
        for request in plan.dropped:
            self.drop(request)
        for layers in plan.passes:
            for row in layers.prefill:
                held = self.kv.setdefault(row.request, [0] * self.num_layers)
                for layer in range(layers.group.first, layers.group.stop):
                    held[layer] += row.num_tokens
                self.hidden[row.request] = row.num_tokens if layers.group.stop < self.num_layers else 0
        for request in plan.decode:
            self.kv[request] = [tokens + 1 for tokens in self.kv[request]]

    @property
    def token_layers(self) -> int:
        return sum(map(sum, self.kv.values()))

    @property
    def hidden_tokens(self) -> int:
        return sum(self.hidden.values())

    def context_tokens(self, decode: tuple[int, ...], window: int | None = None) -> int:
        """Keys that the decode rows read in the iteration that has just run."""
        return sum(min(self.kv[request][0], window or 10**9) for request in decode)


@dataclass
class _Prompt:
    length: int
    done: int = 0
    chunk: int = 0


class RandomPlans:
    """Each call of `next` is one iteration: prompts in whole, in chunks or layer by layer, pauses, drops and ends."""

    def __init__(self, seed: int, num_layers: int) -> None:
        self._random = random.Random(seed)
        self._num_layers = num_layers
        self._ids = iter(range(10_000))
        self.decoding: list[int] = []
        self._waiting: dict[int, _Prompt] = {}
        self._flight: dict[int, _Prompt] = {}
        self._layer = 0
        self.ended: list[int] = []

    def next(self) -> IterationPlan:
        """The plan; `ended` are those to be freed after it."""
        draw = self._random
        while len(self._waiting) < 2:
            self._waiting[next(self._ids)] = _Prompt(draw.randint(1, 40))
        dropped = self._drop()
        decode = () if draw.random() < 0.1 else tuple(self.decoding)
        passes, finishing = self._passes(decode)
        self.ended = [request for request in self.decoding if draw.random() < 0.08]
        self.decoding = [request for request in self.decoding if request not in self.ended] + list(finishing)
        return IterationPlan(decode=decode, passes=passes, finishing=finishing, dropped=dropped)

    def _drop(self) -> tuple[int, ...]:
        draw = self._random
        dropped = [request for request in (*self.decoding, *self._flight) if draw.random() < 0.03]
        for request in dropped:
            self._flight.pop(request, None)
            if request in self.decoding:
                self.decoding.remove(request)
            self._waiting[request] = _Prompt(draw.randint(1, 40))
        if not self._flight:
            self._layer = 0
        return tuple(dropped)

    def _passes(self, decode: tuple[int, ...]) -> tuple[tuple[LayerPass, ...], tuple[int, ...]]:
        draw = self._random
        if self._layer == 0:
            self._start_chunks()
        if not self._flight or draw.random() < 0.2:
            return ((LayerPass(LayerGroup(0, self._num_layers)),) if decode else ()), ()
        group = LayerGroup(self._layer, draw.randint(self._layer + 1, self._num_layers))
        rows = tuple(PrefillRow(request, prompt.done, prompt.chunk) for request, prompt in self._flight.items())
        around = [LayerGroup(0, group.first), LayerGroup(group.stop, self._num_layers)] if decode else []
        passes = [LayerPass(group, rows), *(LayerPass(other) for other in around if other.num_layers)]
        self._layer = group.stop % self._num_layers
        finishing = self._land() if self._layer == 0 else ()
        return tuple(sorted(passes, key=lambda layers: layers.group)), finishing

    def _start_chunks(self) -> None:
        draw = self._random
        while self._waiting and len(self._flight) < 3 and draw.random() < 0.6:
            request = next(iter(self._waiting))
            self._flight[request] = self._waiting.pop(request)
        for prompt in self._flight.values():
            prompt.chunk = draw.randint(1, prompt.length - prompt.done)

    def _land(self) -> tuple[int, ...]:
        for prompt in self._flight.values():
            prompt.done += prompt.chunk
        finished = tuple(request for request, prompt in self._flight.items() if prompt.done == prompt.length)
        for request in finished:
            del self._flight[request]
        return finished
