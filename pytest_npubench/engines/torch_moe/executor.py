"""Runs iteration plans on one device, on the wall clock: every figure it returns is counted, none is modelled.

An iteration: check the plan and lend KV blocks; put all that its passes need on the device; run the passes; then fetch
new tokens and counters in one transfer, which also waits for the device. One of decode rows alone replays the graph of
its batch size instead, where there are graphs (decode_graphs.py).

Example: request 1 gets its first token; then it decodes while prompt 7 of 8 tokens goes through two layer groups.

    executor = TorchExecutor(decoder_shape("small-moe"), kv_capacity_tokens=4096)
    low, high, whole = LayerGroup(0, 4), LayerGroup(4, 8), LayerGroup(0, 8)
    executor.begin(1, prompt_tokens=3, output_tokens=3)
    executor.run(IterationPlan(passes=(LayerPass(whole, (PrefillRow(1, 0, 3),)),), finishing=(1,)))
    executor.begin(7, prompt_tokens=8, output_tokens=1)
    prompt = (PrefillRow(7, 0, 8),)
    executor.run(IterationPlan(decode=(1,), passes=(LayerPass(low, prompt), LayerPass(high))))
    executor.run(IterationPlan(decode=(1,), passes=(LayerPass(low), LayerPass(high, prompt)), finishing=(7,)))
    executor.end(1)
    executor.end(7)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.engines.sequences import HiddenStates, Sequences, check_finishing, check_layers
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.engines.torch_moe.attention import attention_kernel
from pytest_npubench.engines.torch_moe.checkpoint import load_weights
from pytest_npubench.engines.torch_moe.decode_graphs import DecodeGraphs, Forward
from pytest_npubench.engines.torch_moe.device import check_fits, keep_freed_memory, memory_for, open_device, torch_dtype
from pytest_npubench.engines.torch_moe.experts import distinct_experts
from pytest_npubench.engines.torch_moe.kv_cache import PagedKvCache
from pytest_npubench.engines.torch_moe.kv_transfer import export_kv, import_kv
from pytest_npubench.engines.torch_moe.model import MoeModel, PassInputs
from pytest_npubench.engines.torch_moe.ragged import ragged_batch
from pytest_npubench.engines.torch_moe.weights import ModelWeights, random_weights
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan, LayerGroup, PrefillRow


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReadyPass:
    """A pass whose inputs are on the device. tokens [T] are ids of all its rows where it starts at layer 0."""

    group: LayerGroup
    inputs: PassInputs
    tokens: Tensor | None


_Chosen: TypeAlias = "list[tuple[Tensor, Tensor]]"
"""By pass: the experts [layers, rows, k] of the rows that count, and of all rows."""


class TorchExecutor:
    """iteration.Executor in torch. Weights are seeded random ones, or those of a Hugging Face directory `weights`.

    Raises ConfigError for a device, dtype, cache or directory that cannot be used, DeviceUnavailableError where there
    is no such device, and MeasurementError where weights and cache do not fit it.
    """

    def __init__(
        self,
        shape: DecoderShape,
        *,
        device: str = "cpu",
        dtype: str = "fp32",
        kv_capacity_tokens: int,
        block_size_tokens: int = 16,
        seed: int = 0,
        weights: Path | None = None,
        make_capture: Callable[[torch.device], Callable[[Forward], Forward]] | None = None,
    ) -> None:
        """`make_capture` makes what captures graphs of decode batches, such as CudaCapture; None: every iteration is
        launched kernel by kernel."""
        self._device, self._dtype = open_device(device), torch_dtype(dtype)
        if self._device.type == "cpu":
            keep_freed_memory()
        self.shape, self.num_layers = shape, shape.num_layers
        self.block_size_tokens, self.kv_capacity_tokens = block_size_tokens, kv_capacity_tokens
        self._kv = self._make_cache()
        kernel = attention_kernel(shape, self._kv)
        self._model = MoeModel(shape, self._make_weights(seed, weights), kernel)
        self._sequences = Sequences(seed, shape.vocab_size)
        self._hidden: HiddenStates[Tensor] = HiddenStates(shape.hidden * self._dtype.itemsize)
        self._tells_host = self._device.type == "cuda" and self._model.launches_ahead
        self._graphs = None if make_capture is None else self._capture(make_capture(self._device))

    @property
    def why_no_graphs(self) -> str:
        """Why decode batches are launched kernel by kernel, though graphs were asked for; empty where they are not."""
        return "" if self._graphs is None else self._graphs.why_not

    def prompts(self, request: int, num_tokens: int) -> list[int]:
        """Returns the token ids of a request's prompt of num_tokens tokens."""
        return self._sequences.prompt(request, num_tokens)

    def begin(self, request: int, prompt_tokens: int, output_tokens: int) -> None:
        """Raises MeasurementError for a request that has begun already or has no prompt."""
        self._sequences.begin(request, prompt_tokens)

    def end(self, request: int) -> None:
        """Frees what the request holds. Raises MeasurementError for one that has not begun."""
        self._sequences.end(request)
        self._free(request)

    def export_kv(self, request: int) -> tuple[int, object]:
        """Bytes of the request's keys and values, and a copy of them with its tokens. They stay here until `end`.

        Raises MeasurementError for a request that has not begun, or whose prompt is not done.
        """
        self._hidden.check_none(request)
        kv = export_kv(self._sequences[request], self._kv)
        return kv.num_bytes, kv

    def import_kv(self, request: int, kv: object) -> None:
        """What another TorchExecutor of the same shape, dtype and seed exported; the request can decode here.

        Raises MeasurementError for a request that has not begun or has run, for keys and values that do not fit it,
        and where they find no room.
        """
        with memory_for(f"the keys and values of request {request}", self._device):
            import_kv(self._sequences[request], self._kv, kv)

    def run(self, plan: IterationPlan) -> IterationOutcome:
        """Runs a plan and waits for the device.

        Raises MeasurementError where memory runs out, saying for what, and for a plan that does not run every token of
        a prompt once through every layer, in order.
        """
        what = f"an iteration of {len(plan.decode)} decode rows and {plan.num_prefill_tokens} prefill tokens"
        with torch.inference_mode(), memory_for(what, self._device):
            return self._run(plan)

    def _run(self, plan: IterationPlan) -> IterationOutcome:
        started_s = perf_counter()
        check_layers(plan, self.num_layers)
        for request in plan.dropped:
            self._sequences[request].num_entered = 0
            self._free(request)
        finished: dict[int, Tensor] = {}
        single, chosen = self._replayed(plan) or self._run_passes(plan, finished)
        check_finishing(plan, finished)
        going_on = (*plan.decode, *plan.finishing)
        tokens = self._next_tokens(
            going_on, [single[: len(plan.decode)], *(finished[request] for request in plan.finishing)]
        )
        results = torch.cat((tokens, *self._counts(chosen)))
        host_s = perf_counter() - started_s if self._tells_host else None
        # one transfer, which waits until the device is done
        *token_ids, active, padded = results.tolist()
        new = dict(zip(going_on, token_ids, strict=True))
        for request, token in new.items():
            self._sequences[request].token_ids.append(token)
        return IterationOutcome(
            tokens=new,
            expert_activations=active,
            padded_expert_activations=padded,
            expert_load_bytes=active * self.shape.expert_bytes(self._dtype.itemsize),
            kv_bytes=self._kv.held_bytes,
            hidden_bytes=self._hidden.num_bytes,
            host_s=host_s,
        )

    def _replayed(self, plan: IterationPlan) -> tuple[Tensor, _Chosen] | None:
        """What _run_passes() gives, from a graph; None where there is none for the plan."""
        if self._graphs is None or any(layers.prefill for layers in plan.passes):
            return None
        contexts = [self._sequences[request].num_tokens for request in plan.decode]
        if not self._graphs.fits([*contexts, *islice(cycle(contexts), plan.num_padding_rows)]):
            return None
        decode, padding = self._single_rows(plan)
        tokens = [*self._sequences.token_ids(decode), *self._sequences.padding_ids(len(padding))]
        single, experts = self._graphs.replay(decode, padding, tokens)
        return single, [] if experts is None else [(experts[:, : len(decode)], experts)]

    def _run_passes(self, plan: IterationPlan, finished: dict[int, Tensor]) -> tuple[Tensor, _Chosen]:
        """Hidden states of the single-token rows behind the last layer, and the experts of all passes."""
        chosen: _Chosen = []
        single = torch.empty((0, self.shape.hidden), dtype=self._dtype, device=self._device)
        for ready in self._prepare(plan):
            single, experts = self._run_pass(ready, single, finished)
            if experts is not None:
                batch = ready.inputs.batch
                counting = experts
                if batch.num_padding:
                    counting = torch.cat((experts[:, : batch.num_decode], experts[:, batch.num_single :]), 1)
                chosen.append((counting, experts))
        return single, chosen

    def _single_rows(self, plan: IterationPlan) -> tuple[list[PrefillRow], list[PrefillRow]]:
        """Decode rows, which enter, and padding rows: an ended row looks back on what a live one has."""
        decode = [self._enter(self._sequences.decode_row(request)) for request in plan.decode]
        return decode, [decode[index % len(decode)] for index in range(plan.num_padding_rows)] if decode else []

    def _prepare(self, plan: IterationPlan) -> list[_ReadyPass]:
        """Does all the host's work before the first kernel runs. Passes of the same rows share their inputs."""
        decode, padding = self._single_rows(plan)
        inputs: dict[tuple[PrefillRow, ...], PassInputs] = {}
        ready = []
        for group, prefill in plan.passes:
            for row in prefill:
                if group.first == 0:
                    self._enter(row)
                else:
                    self._sequences.check_entered(row)
            if prefill not in inputs and (decode or prefill):
                inputs[prefill] = self._model.prepare(ragged_batch(decode, padding, prefill, self._kv))
            if decode or prefill:
                tokens = self._tokens(decode, len(padding), prefill) if group.first == 0 else None
                ready.append(_ReadyPass(group=group, inputs=inputs[prefill], tokens=tokens))
        return ready

    def _enter(self, row: PrefillRow) -> PrefillRow:
        self._sequences.enter(row)
        self._kv.reserve(row.request, row.first_token + row.num_tokens)
        return row

    def _tokens(self, decode: list[PrefillRow], num_padding: int, prefill: tuple[PrefillRow, ...]) -> Tensor:
        sequences = self._sequences
        ids = [*sequences.token_ids(decode), *sequences.padding_ids(num_padding), *sequences.token_ids(prefill)]
        return torch.tensor(ids, device=self._device)

    def _run_pass(self, ready: _ReadyPass, single: Tensor, finished: dict[int, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Hidden states of the single-token rows, as the pass before left them and as this one does, and the experts
        that all rows chose. What prompts leave behind is kept; their last states, at the end, go into `finished`."""
        (first, stop), prefill = ready.group, ready.inputs.batch.prefill
        if ready.tokens is None:
            hidden = torch.cat((single, *(self._hidden.take(row, first) for row in prefill)))
        else:
            hidden = self._model.embed(ready.tokens)
        hidden, experts = self._model.run_layers(first, stop, hidden, ready.inputs, self._kv)
        single, *states = hidden.split([ready.inputs.batch.num_single, *(row.num_tokens for row in prefill)])
        for row, left in zip(prefill, states, strict=True):
            if stop < self.num_layers:
                self._hidden.keep(row, stop, left.clone())  # a slice would keep the states of the whole batch alive
            elif self._sequences.is_last(row):
                finished[row.request] = left[-1:]
        return single, experts

    def _next_tokens(self, requests: Sequence[int], hidden: list[Tensor]) -> Tensor:
        """Greedy token ids of these requests from the last layer's output; none for no requests."""
        if not requests:
            return torch.empty(0, dtype=torch.int64, device=self._device)
        return self._model.next_tokens(torch.cat(hidden))

    def _counts(self, chosen: _Chosen) -> tuple[Tensor, Tensor]:
        """Distinct experts of each layer, summed over layers: of the rows that count [1], and with padding [1]."""
        active = padded = torch.zeros(1, dtype=torch.int64, device=self._device)
        for counting, experts in chosen:
            with_padding = distinct_experts(experts, self.shape.num_experts)
            is_padded = counting.shape != experts.shape
            active = active + (distinct_experts(counting, self.shape.num_experts) if is_padded else with_padding)
            padded = padded + with_padding
        return active, padded

    def _free(self, request: int) -> None:
        self._kv.free(request)
        self._hidden.free(request)

    def _make_weights(self, seed: int, folder: Path | None) -> ModelWeights:
        what = f"{self.shape.num_parameters:,} weights of {self.shape.name}"
        check_fits(what, self.shape.num_parameters * self._dtype.itemsize, self._device)
        with memory_for(what, self._device):
            if folder is not None:
                return load_weights(self.shape, folder, device=self._device, dtype=self._dtype)
            return random_weights(self.shape, seed=seed, device=self._device, dtype=self._dtype)

    def _capture(self, capture: Callable[[Forward], Forward]) -> DecodeGraphs:
        with torch.inference_mode(), memory_for("graphs of decode batches", self._device):
            return DecodeGraphs(self._model, self._kv, capture)

    def _make_cache(self) -> PagedKvCache:
        num_bytes = self.kv_capacity_tokens * self.shape.kv_bytes_per_token(self._dtype.itemsize)
        what = f"a KV cache of {self.kv_capacity_tokens:,} tokens"
        check_fits(what, num_bytes, self._device)
        with memory_for(f"{what}, {num_bytes / 1e9:.1f} GB", self._device):
            return PagedKvCache(
                self.shape,
                capacity_tokens=self.kv_capacity_tokens,
                block_size_tokens=self.block_size_tokens,
                device=self._device,
                dtype=self._dtype,
            )


def num_threads() -> int:
    """With how many threads the engines of this process compute."""
    return int(torch.get_num_threads())


def executor_of_threads(threads: int, shape: DecoderShape, settings: dict[str, Any]) -> TorchExecutor:
    """Returns a TorchExecutor with these keyword arguments, in a process that computes with so many threads from here
    on."""
    torch.set_num_threads(threads)
    return TorchExecutor(shape, **settings)
