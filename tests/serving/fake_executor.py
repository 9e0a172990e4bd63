"""An executor for tests only: no device, no model. It checks every plan as it runs it, and can be worked out by hand.

An iteration takes 1 s, 0.01 s for each decode row and 0.1 s for each prompt token that runs through the whole model (a
part of the layers costs that part). A request's next token is a hash of the tokens whose keys and values its layers
hold, so a row that ran twice, too early or not at all changes every token after it. What a plan may not do fails an
assertion here.
"""

from __future__ import annotations

import zlib
from collections import Counter

from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan, LayerGroup, PrefillRow

NUM_EXPERTS = 8
EXPERT_BYTES = 100
KV_BYTES = 2  # of one token in one layer
HIDDEN_BYTES = 4  # of one token


def prompt_of(request: int, num_tokens: int) -> list[int]:
    return [zlib.crc32(f"{request}/{position}".encode()) % 1000 for position in range(num_tokens)]


def next_token(seen: list[int]) -> int:
    return zlib.crc32(repr(seen).encode()) % 1000


def greedy(request: int, prompt_tokens: int, output_tokens: int) -> tuple[int, ...]:
    """What a request must generate, worked out with no scheduler at all."""
    seen = prompt_of(request, prompt_tokens)
    for _ in range(output_tokens):
        seen.append(next_token(seen))
    return tuple(seen[prompt_tokens:])


def expert_of(token: int, layer: int) -> int:
    return (token * 7 + layer * 3) % NUM_EXPERTS


class _Held:
    """What the device holds of a request."""

    def __init__(self, request: int, prompt_tokens: int, output_tokens: int, num_layers: int) -> None:
        self.tokens = prompt_of(request, prompt_tokens)  # and what it has generated
        self.num_asked = prompt_tokens + output_tokens
        self.kv: list[list[int]] = [[] for _ in range(num_layers)]
        self.hidden: dict[tuple[int, int], int] = {}  # (first token, number) -> the layer they enter next
        self.decodes = False

    def drop(self) -> None:
        self.kv = [[] for _ in self.kv]
        self.hidden = {}
        self.decodes = False

    def num_blocks(self, block_size_tokens: int) -> int:
        return -(-max(len(kv) for kv in self.kv) // block_size_tokens)


class FakeExecutor:
    """`work`: through how many layers each (request, position) ran as a prompt token; `plans`: all that ran."""

    def __init__(
        self, *, num_layers: int = 4, kv_capacity_tokens: int = 1000, block_size_tokens: int = 4, times: bool = True
    ) -> None:
        self.num_layers = num_layers
        self.kv_capacity_tokens = kv_capacity_tokens
        self.block_size_tokens = block_size_tokens
        self.times = times
        self.held: dict[int, _Held] = {}
        self.work: Counter[tuple[int, int]] = Counter()
        self.plans: list[IterationPlan] = []
        self.activations: list[tuple[int, ...]] = []  # distinct experts of each layer, an entry an iteration
        self.num_dropped: Counter[int] = Counter()

    def begin(self, request: int, prompt_tokens: int, output_tokens: int) -> None:
        assert request not in self.held
        self.held[request] = _Held(request, prompt_tokens, output_tokens, self.num_layers)

    def end(self, request: int) -> None:
        del self.held[request]

    def run(self, plan: IterationPlan) -> IterationOutcome:
        for request in plan.dropped:
            self.held[request].drop()
            self.num_dropped[request] += 1
        self._check_passes(plan)
        experts: list[set[int]] = [set() for _ in range(self.num_layers)]
        finished, token_layers = [], 0
        for group, rows in plan.passes:
            for row in rows:
                finished += self._prefill(row, group, experts)
                token_layers += row.num_tokens * group.num_layers
        assert tuple(finished) == plan.finishing
        for request in plan.decode:
            self._decode(request, experts)
        self._check_memory()
        self.plans.append(plan)
        self.activations.append(tuple(len(layer) for layer in experts))
        num_activations = sum(self.activations[-1])
        seconds = 1 + 0.01 * len(plan.decode) + 0.1 * token_layers / self.num_layers
        return IterationOutcome(
            duration_s=seconds if self.times else None,
            tokens={request: self._sample(request) for request in (*plan.decode, *plan.finishing)},
            expert_activations=num_activations,
            padded_expert_activations=num_activations + plan.num_padding_rows,
            expert_load_bytes=num_activations * EXPERT_BYTES,
            kv_bytes=sum(len(kv) for held in self.held.values() for kv in held.kv) * KV_BYTES,
            hidden_bytes=self.num_hidden_tokens * HIDDEN_BYTES,
        )

    @property
    def num_hidden_tokens(self) -> int:
        return sum(number for held in self.held.values() for _, number in held.hidden)

    def export_kv(self, request: int) -> tuple[int, object]:
        held = self.held[request]
        assert held.decodes
        return sum(len(kv) for kv in held.kv) * KV_BYTES, ([list(kv) for kv in held.kv], held.tokens[-1])

    def import_kv(self, request: int, kv: object) -> None:
        held = self.held[request]
        held.kv, token = kv  # type: ignore[misc]
        held.tokens.append(token)
        held.decodes = True
        self._check_memory()

    def _check_passes(self, plan: IterationPlan) -> None:
        layers = [layer for group, _ in plan.passes for layer in range(*group)]
        assert all(group.first < group.stop for group, _ in plan.passes)
        assert layers == sorted(set(layers)), "passes overlap or are out of order"
        assert set(layers) <= set(range(self.num_layers))
        if plan.decode:
            assert len(layers) == self.num_layers, "a decode row must run through all layers"
        prefilling = {row.request for _, rows in plan.passes for row in rows}
        assert len(set(plan.decode)) == len(plan.decode)
        assert not prefilling & set(plan.decode)
        assert plan.decode or prefilling, "an iteration that runs nothing"

    def _prefill(self, row: PrefillRow, group: LayerGroup, experts: list[set[int]]) -> list[int]:
        """Returns the request where this row's last token left the last layer."""
        held = self.held[row.request]
        assert not held.decodes
        stop, key = row.first_token + row.num_tokens, (row.first_token, row.num_tokens)
        assert row.num_tokens > 0
        assert stop <= len(held.tokens)
        assert held.hidden.pop(key, 0) == group.first, "no hidden states where the row enters"
        tokens = held.tokens[row.first_token : stop]
        for layer in range(*group):
            assert len(held.kv[layer]) == row.first_token, (
                "these tokens' keys and values are there, or earlier ones' not"
            )
            held.kv[layer] += tokens
            experts[layer].update(expert_of(token, layer) for token in tokens)
        for position in range(row.first_token, stop):
            self.work[row.request, position] += group.num_layers
        if group.stop < self.num_layers:
            held.hidden[key] = group.stop
            return []
        return [row.request] if stop == len(held.tokens) else []

    def _decode(self, request: int, experts: list[set[int]]) -> None:
        held = self.held[request]
        assert held.decodes, "it has no token to feed"
        for layer, kv in enumerate(held.kv):
            assert len(kv) == len(held.tokens) - 1
            kv.append(held.tokens[-1])
            experts[layer].add(expert_of(held.tokens[-1], layer))

    def _sample(self, request: int) -> int:
        held = self.held[request]
        assert all(kv == held.kv[0] for kv in held.kv)
        assert len(held.tokens) < held.num_asked, "a token more than it asked for"
        held.tokens.append(next_token(held.kv[0]))
        held.decodes = True
        return held.tokens[-1]

    def _check_memory(self) -> None:
        num_blocks = sum(held.num_blocks(self.block_size_tokens) for held in self.held.values())
        assert num_blocks * self.block_size_tokens <= self.kv_capacity_tokens, "more KV than there is room for"
