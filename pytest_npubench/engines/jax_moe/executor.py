"""Runs iteration plans by binaries of fixed sizes, on the wall clock: every figure it returns is counted.

All binaries are compiled when it is made. An iteration: check the plan and lend KV blocks; make the arrays of its
passes; run these; then fetch new tokens and counters, which waits for the devices. Hidden states stay on the devices,
by slot of the cache, so that no array's size depends on a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
import numpy.typing as npt

from pytest_npubench.engines.block_tables import BlockTables, Indices
from pytest_npubench.engines.jax_dense.binaries import Binary
from pytest_npubench.engines.jax_moe.batches import batch, pieces
from pytest_npubench.engines.jax_moe.forward import Batch, State, Weights
from pytest_npubench.engines.jax_moe.programs import ServingPrograms
from pytest_npubench.engines.jax_moe.sizes import ServingSizes, Size
from pytest_npubench.engines.protocol import Compiler
from pytest_npubench.engines.sequences import HiddenStates, Sequences, check_finishing, check_layers
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan, LayerGroup, PrefillRow

Call = tuple[Size, Batch, LayerGroup]


class JaxExecutor:
    """iteration.Executor in jax, with seeded random weights. Raises ConfigError for a shape, dtype or number of devices
    that it does not serve."""

    def __init__(
        self,
        shape: DecoderShape,
        compiler: Compiler,
        *,
        dtype: str,
        sizes: ServingSizes,
        seed: int = 0,
        compiled: dict[str, Callable[..., Any]] | None = None,
    ) -> None:
        """compiled: binaries of these settings by name, which an executor before this one compiled."""
        self._binaries = {} if compiled is None else compiled
        self.shape, self.num_layers, self.sizes = shape, shape.num_layers, sizes
        self.block_size_tokens, self.kv_capacity_tokens = sizes.block_size_tokens, sizes.kv_capacity_tokens
        self._programs = ServingPrograms(shape, compiler.devices, dtype=dtype, sizes=sizes)
        self._compiler, self._itemsize = compiler, int(np.dtype(self._programs.dtype).itemsize)
        self._blocks = BlockTables(
            capacity_tokens=sizes.kv_capacity_tokens,
            block_size_tokens=sizes.block_size_tokens,
            bytes_per_token=shape.kv_bytes_per_token(self._itemsize),
        )
        self._sequences = Sequences(seed, shape.vocab_size)
        self._between: HiddenStates[Indices] = HiddenStates(shape.hidden * self._itemsize)
        self._layers = {size: self._compiled(self._programs.layers(size)) for size in (*sizes.decode, *sizes.passes)}
        self._head = self._compiled(self._programs.head())
        self._filled_state = self._compiled(self._programs.filled_state())
        self._weights = jax.block_until_ready(self._make_weights(seed))
        self._state: State = jax.block_until_ready(self._filled_state(np.float32(0)))

    def begin(self, request: int, prompt_tokens: int, output_tokens: int) -> None:
        """Raises MeasurementError for a request that has begun already, has no prompt or is too long."""
        if prompt_tokens + output_tokens - 1 > self.sizes.longest_context:
            raise MeasurementError(
                f"request {request} has {prompt_tokens} prompt and {output_tokens} output tokens; this engine is "
                f"compiled for contexts of at most {self.sizes.longest_context} tokens"
            )
        self._sequences.begin(request, prompt_tokens)

    def end(self, request: int) -> None:
        """Frees what the request holds. Raises MeasurementError for one that has not begun."""
        self._sequences.end(request)
        self._free(request)

    def run(self, plan: IterationPlan) -> IterationOutcome:
        """Runs a plan and waits for the devices. Raises MeasurementError for a plan that does not run every token of a
        prompt once through every layer, in order."""
        check_layers(plan, self.num_layers)
        for request in plan.dropped:
            self._sequences[request].num_entered = 0
            self._free(request)
        finished: dict[int, int] = {}
        calls = [call for group, prefill in plan.passes for call in self._calls(plan, group, prefill, finished)]
        check_finishing(plan, finished)
        loaded = [self._run(call) for call in calls]
        going_on = (*plan.decode, *plan.finishing)
        slots = [self._last_slot(request) for request in plan.decode] + [finished[item] for item in plan.finishing]
        tokens = self._next_tokens(going_on, slots)
        for request, token in tokens.items():
            self._sequences[request].token_ids.append(token)
        active, padded = np.sum(jax.device_get(loaded), axis=0, dtype=int).tolist() if loaded else (0, 0)
        return IterationOutcome(
            tokens=tokens,
            expert_activations=active,
            padded_expert_activations=padded,
            expert_load_bytes=active * self.shape.expert_bytes(self._itemsize),
            kv_bytes=self._blocks.held_bytes,
            hidden_bytes=self._between.num_bytes,
        )

    def _calls(
        self, plan: IterationPlan, group: LayerGroup, prefill: Sequence[PrefillRow], finished: dict[int, int]
    ) -> Iterator[Call]:
        """The binaries that a pass calls. What prompts leave behind is noted; the slots of their last tokens, at the
        end, go into `finished`."""
        decode = [self._sequences.decode_row(request) for request in plan.decode]
        for row in (*(decode if group.first == 0 else ()), *prefill):
            self._enter(row, group.first)
        # an ended row looks back on what a live one has
        padding = [decode[index % len(decode)] for index in range(plan.num_padding_rows)] if decode else []
        for piece in pieces(self.sizes, decode, padding, prefill):
            yield piece.size, batch(piece, self.sizes.num_pages, self._blocks, self._sequences), group
        for row in prefill:
            slots = self._blocks.slots(*row)
            if group.stop < self.num_layers:
                self._between.keep(row, group.stop, slots)
            elif self._sequences.is_last(row):
                finished[row.request] = int(slots[-1])

    def _enter(self, row: PrefillRow, layer: int) -> None:
        if layer:
            self._sequences.check_entered(row)
            self._between.take(row, layer)
            return
        self._sequences.enter(row)
        self._blocks.reserve(row.request, row.first_token + row.num_tokens)

    def _run(self, call: Call) -> Any:
        size, arrays, (first, stop) = call
        self._state, loaded = self._layers[size](self._weights, self._state, arrays, np.int32(first), np.int32(stop))
        return loaded

    def _last_slot(self, request: int) -> int:
        return int(self._blocks.slots(*self._sequences.decode_row(request))[0])

    def _next_tokens(self, requests: Sequence[int], slots: Sequence[int]) -> dict[int, int]:
        """What each request goes on with, from the last layer's states at these slots."""
        tokens, _ = self._fetched(slots)
        return dict(zip(requests, tokens.tolist(), strict=True))

    def _fetched(self, slots: Sequence[int]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
        """The greedy tokens [slots] and the fixed logits [slots, NUM_FIXED]."""
        most = self.sizes.decode[-1].num_single
        starts = range(0, len(slots), most)
        padded = np.zeros((len(starts), most), np.int32)
        padded.flat[: len(slots)] = slots
        fetched = jax.device_get([self._head(self._weights, self._state.hidden, row) for row in padded])
        if not fetched:
            return np.zeros(0, np.int32), np.zeros((0, 0), np.float32)
        tokens, logits = (np.concatenate(arrays)[: len(slots)] for arrays in zip(*fetched, strict=True))
        return tokens, logits

    def _free(self, request: int) -> None:
        self._blocks.free(request)
        self._between.free(request)

    def _make_weights(self, seed: int) -> Weights:
        weights: Weights = self._compiled(self._programs.random_weights())(np.uint32(seed))
        return weights

    def _compiled(self, binary: Binary) -> Callable[..., Any]:
        if binary.name not in self._binaries:
            self._binaries[binary.name] = self._compiler.compile(
                binary.name, binary.function, *binary.arguments, donate=binary.donate, out=binary.out
            )
        return self._binaries[binary.name]
