"""Seconds of an iteration, from bytes over bandwidth and operations over peak rate.

A pass is a run of layers with the same rows. Each kind of work in it takes

    max(bytes / (bandwidth x fraction), operations / (peak x fraction))

and the kinds follow one another, as their kernels do:

    shared      attention projections, router, a dense feed-forward block: weights read once a layer
    attention   decode rows read their whole context (or the window); a prefill row reads its own once and multiplies
                every pair of a query and a key before it
    experts     weights of the activated experts; a grouped product fills its tiles only where an expert has many rows:
                utilisation = t / (t + TILE_ROWS) at t rows an expert, which is TILE_ROWS rows more for each activation
    moved       activations that one kernel writes and the next one reads, and the new keys and values
    links       two all-reduces a layer over the interconnect, where tensor_parallel > 1; over the network where the
                devices are of several nodes
    fixed       what a layer's kernels cost with no work in them

Beside the passes an iteration has its host's time, and the vocabulary's projection for the rows that are sampled.

Worked example: one layer of qwen3-30b-a3b in bf16 on one H100 at its peaks (every fraction 1): its attention and router
have 19.14e6 weights, so one row takes max(38.3e6 B / 3.35e12 B/s, 38.3e6 / 989.4e12) = 11.4 us, and the 8 experts of
that row max(8 x 9.437e6 / 3.35e12, ...) = 22.5 us.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pytest_npubench.core.figures import Figure
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.decoder_layers import LayerShape
from pytest_npubench.engines.kv_capacity import dtype_bytes, kv_copies
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.planning.virtual.step_cost import StepWork
from pytest_npubench.serving.iteration import PrefillRow

ALL_REDUCES_PER_LAYER = 2  # after attention's output projection, and after the feed-forward block


@dataclass(frozen=True, slots=True, kw_only=True)
class Attainable:
    """Which part of a published peak kernels reach, and the times that no peak explains.

    Where no other source is named, a value is set so that the model gives the microbenchmarks of Layered Prefill
    (section 3.2 and Figure 2: a prompt of 8,192 tokens in 16 chunks takes somewhat over 500 ms, more than half of it
    experts, and in one piece near 200 ms; section 5.11: 14.9 ms between tokens at 0.1 requests/s). They
    are the figures of one software stack on two H100s, not laws; docs/scheduling.md says how well they carry over.
    """

    memory: float = 0.8
    """Of the bandwidth, when a kernel streams weights or keys and values: refresh, row misses, ends of a kernel."""
    gemm: float = 0.35
    """Of the peak rate, of a plain product."""
    attention: float = 0.3
    """Of the peak rate, of attention over a prompt; FlashAttention-3 (arXiv 2407.08608) reports 0.75 at its best."""
    grouped_gemm: float = 0.25
    """Of the peak rate, of a grouped product whose tiles are full."""
    tile_rows: float = 128.0
    """Rows that each activated expert costs beside its own, a tile of a grouped product."""
    interconnect: float = 0.84
    """Of the bandwidth; 376 to 380 of 450 GB/s measured between two H100s (NVIDIA/nccl issue 1264)."""
    iteration_s: float = 2e-3
    """The host between two iterations: schedule, launch, sample, and send the tokens off."""
    layer_s: float = 50e-6
    """Norms, rotary embedding, cache writes and launches of one layer."""
    expert_layer_s: float = 110e-6
    """Router, sorting the rows by expert, and adding them up again, in a layer with experts."""
    all_reduce_s: float = 15e-6
    """Latency of one all-reduce, both sides waiting for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Seconds for each unit of work in one layer, on one device of the group.

    `head_*` and `iteration_s` are those of a whole iteration.

    A `pair` is one query with one key, over all heads; `context` is one token whose keys and values are read. `index_*`
    are those of an index over all tokens, `state_*` of a state: what a token multiplies, what a row reads and writes.
    """

    is_affine: ClassVar[bool] = True
    shared_read_s: float
    shared_row_s: float
    expert_read_s: float
    expert_row_s: float
    expert_tile_s: float
    context_s: float
    context_read_s: float
    pair_s: float
    moved_row_s: float
    link_row_s: float
    layer_s: float
    head_read_s: float
    head_row_s: float
    iteration_s: float
    window: int | None
    index_context_s: float = 0.0
    index_read_s: float = 0.0
    index_pair_s: float = 0.0
    state_row_s: float = 0.0
    state_move_s: float = 0.0

    def seconds(self, work: StepWork) -> float:
        """The passes one after the other, the vocabulary's projection and the host (step_cost.StepCost)."""
        passes, rows, context, window, num_sampled, expert_rows, _, _ = work
        passes_s, layers_s, has_windows = 0.0, self.layers_s, self.window is not None
        for first, stop, prefill, activations in passes:
            # gpt-oss: a window in layers 0, 2, 4, ...
            windowed = (stop + 1) // 2 - (first + 1) // 2 if has_windows else 0
            passes_s += sum(layers_s(stop - first, windowed, rows, context, window, prefill, activations, expert_rows))
        return self.iteration_s + self.sampling_s(num_sampled) + passes_s

    def layers_s(
        self,
        layers: int,
        windowed: int,
        rows: int,
        context_tokens: float,
        window_tokens: float,
        prefill: Sequence[PrefillRow],
        activations: float,
        expert_rows: float,
    ) -> tuple[float, float, float, float, float, float]:
        """Seconds of so many layers, of which `windowed` have a window, by kind of work: what every row takes,
        attention, experts, rows moved, links, and what is fixed. Decode rows read context_tokens in all (window_tokens
        in a layer with a window) beside the prefill rows; so many experts are activated over these layers."""
        attention_s = ((layers - windowed) * context_tokens + windowed * window_tokens) * self.context_s
        if self.index_read_s or self.state_move_s:
            attention_s += layers * self._index_and_state_s(rows, context_tokens, prefill)
        for _, first_token, num_tokens in prefill:
            rows += num_tokens
            # one layer's attention of tokens [first_token, first_token + num_tokens) over all before them
            pairs_s = num_tokens * (first_token + (num_tokens + 1) / 2) * self.pair_s
            read_s = (first_token + num_tokens) * self.context_read_s
            attention_s += (layers - windowed) * (pairs_s if pairs_s > read_s else read_s)
            if windowed:
                attention_s += windowed * self._windowed_prompt_s(first_token, num_tokens)
        layer_rows = layers * rows
        read_s, shared_s = layers * self.shared_read_s, layer_rows * self.shared_row_s
        experts_s = 0.0
        if self.expert_read_s:
            experts_s = max(
                activations * self.expert_read_s,
                layer_rows * expert_rows * self.expert_row_s + activations * self.expert_tile_s,
            )
        return (
            shared_s if shared_s > read_s else read_s,
            attention_s,
            experts_s,
            layer_rows * self.moved_row_s,
            layer_rows * self.link_row_s,
            layers * self.layer_s,
        )

    def _index_and_state_s(self, rows: int, context_tokens: float, prefill: Sequence[PrefillRow]) -> float:
        """Of one layer: decode rows read the index of all their tokens and move their states; a prompt's row does so
        once, and its tokens follow one another."""
        seconds = context_tokens * self.index_context_s + rows * max(self.state_row_s, self.state_move_s)
        for _, first_token, num_tokens in prefill:
            pairs_s = num_tokens * (first_token + (num_tokens + 1) / 2) * self.index_pair_s
            seconds += max(pairs_s, (first_token + num_tokens) * self.index_read_s)
            seconds += max(num_tokens * self.state_row_s, self.state_move_s)
        return seconds

    def sampling_s(self, num_rows: int) -> float:
        """The vocabulary's projection for the rows that get a token."""
        if not num_rows:
            return 0.0
        rows_s = num_rows * self.head_row_s
        return rows_s if rows_s > self.head_read_s else self.head_read_s

    def _windowed_prompt_s(self, first_token: int, num_tokens: int) -> float:
        """One layer's attention of a prompt's tokens where each sees itself and the window - 1 tokens before it."""
        assert self.window is not None
        short = min(max(self.window - 1 - first_token, 0), num_tokens)  # queries that see less than a whole window
        pairs = short * first_token + short * (short + 1) / 2 + (num_tokens - short) * self.window
        read = min(first_token + num_tokens, num_tokens + self.window - 1)
        return max(pairs * self.pair_s, read * self.context_read_s)


def cost_model(
    shape: DecoderShape,
    spec: HardwareSpec,
    *,
    tensor_parallel: int,
    dtype: str,
    kv_dtype: str | None = None,
    num_sharing: int = 1,
    attainable: Attainable | None = None,
    layer: LayerShape | None = None,
) -> CostModel:
    """The unit costs of a model on `tensor_parallel` devices of one kind, a replica of num_sharing that share their
    experts; of its layers of one kind, where they differ (mixed_layers.py).

    Raises ConfigError where the hardware file lacks a peak that is needed, or the heads cannot be split.
    """
    reach, each = attainable or Attainable(), dtype_bytes(dtype)
    layer = layer or shape.all_layers[0]
    check_split(shape, tensor_parallel)
    memory_per_s = _per_device(spec, "memory_bandwidth_bytes_per_s", spec.peak.memory_bandwidth_bytes_per_s)
    peaks = spec.peak.flops_per_s
    quantised = peaks.get(shape.weight_bits.compute or dtype) if shape.weight_bits else None
    flops_per_s = _per_device(spec, f"flops_per_s.{dtype}", quantised or peaks.get(dtype))
    streamed_s = each / tensor_parallel / (memory_per_s * reach.memory)  # of one value that the devices share out
    product_s = 2 / tensor_parallel / flops_per_s  # of one multiplication and addition, shared out
    expert_s = shape.expert_parameters * product_s / reach.grouped_gemm
    activated = tensor_parallel * num_sharing  # devices that share out what is activated
    kept = dtype_bytes(kv_dtype or dtype) / each * kv_copies(shape, tensor_parallel)
    context_read_s, index_read_s = (values * kept * streamed_s for values in (layer.kv_values, layer.index_values))
    attended_s = product_s / reach.attention
    vocabulary = shape.vocab_size * shape.hidden
    return CostModel(
        shared_read_s=shape.shared_bytes(layer, each) / each * streamed_s,
        shared_row_s=layer.shared_parameters * product_s / reach.gemm,
        expert_read_s=layer.has_experts * shape.expert_bytes(each) / activated / (memory_per_s * reach.memory),
        expert_row_s=layer.has_experts * shape.experts_per_token * expert_s,
        expert_tile_s=layer.has_experts * reach.tile_rows * expert_s / num_sharing,
        context_s=max(context_read_s, layer.cached_products * attended_s),
        context_read_s=context_read_s,
        pair_s=layer.pair_products * attended_s,
        moved_row_s=moved_values_per_row(shape, tensor_parallel, layer) * each / (memory_per_s * reach.memory),
        link_row_s=layer.num_blocks / 2 * _link_row_s(shape, spec, tensor_parallel, num_sharing, each, reach),
        layer_s=_layer_s(layer, tensor_parallel, reach),
        head_read_s=shape.head_bytes(each) / each * streamed_s,
        head_row_s=vocabulary * product_s / reach.gemm,
        iteration_s=reach.iteration_s,
        window=layer.window,
        index_context_s=max(index_read_s, layer.index_products * attended_s),
        index_read_s=index_read_s,
        index_pair_s=layer.index_products * attended_s,
        state_row_s=layer.state_products * attended_s,
        state_move_s=2 * layer.state_bytes(each) / each * streamed_s,
    )


def handover_s(
    spec: HardwareSpec, num_bytes: int, *, senders: int, receivers: int, attainable: Attainable | None = None
) -> float:
    """Seconds to send keys and values from so many devices to so many others, over a link for each of the fewer.

    Raises ConfigError where the hardware file states no link.
    """
    per_s = link_per_s(spec, is_beyond_node=spans_nodes(spec, senders + receivers))
    return num_bytes / (min(senders, receivers) * per_s * (attainable or Attainable()).interconnect)


def spans_nodes(spec: HardwareSpec, num_devices: int) -> bool:
    """Whether so many devices are more than one node has."""
    return spec.network is not None and num_devices > spec.network.devices_per_node


def link_per_s(spec: HardwareSpec, *, is_beyond_node: bool) -> float:
    """Bytes a second that a device sends to others of its node, or of other nodes.

    Raises ConfigError where the hardware file states no such link.
    """
    if is_beyond_node and spec.network is not None:
        return spec.network.bandwidth_bytes_per_s.value
    return _per_device(spec, "interconnect_bandwidth_bytes_per_s", spec.peak.interconnect_bandwidth_bytes_per_s)


def moved_values_per_row(shape: DecoderShape, tensor_parallel: int, layer: LayerShape) -> float:
    """Values of one row that a layer's kernels write to memory and read again, on one device of the group.

    Two norms with the residual: 8 hidden; into and out of attention: 2 hidden, queries, keys, values and the output
    twice each. Feed-forward: its input and output, gate and up written and read, their product written and read; with
    experts all of that for each of experts_per_token copies of the row, and the sum over them. Heads of compressed keys
    and values count as those of the values. A layer of one block has one norm.
    """
    inside = 2 * layer.dense_parameters / shape.hidden / tensor_parallel  # 6 times the width
    moved = 4 * layer.num_blocks * shape.hidden + 2 * layer.mixed_values / tensor_parallel + inside
    moved += 2 * shape.hidden * bool(layer.attention_parameters)
    if layer.has_experts:
        return moved + moved_expert_values_per_row(shape, tensor_parallel)
    return moved + 2 * shape.hidden * bool(layer.dense_parameters)


def moved_expert_values_per_row(shape: DecoderShape, tensor_parallel: int) -> float:
    """Of those, the feed-forward part with experts."""
    inside = 6 * shape.intermediate / tensor_parallel
    return shape.experts_per_token * (3 * shape.hidden + inside) + shape.hidden


def _link_row_s(
    shape: DecoderShape, spec: HardwareSpec, devices: int, num_sharing: int, each: float, reach: Attainable
) -> float:
    """A ring all-reduce: every device sends 2 (devices - 1) / devices of the values, twice a layer. To shared experts a
    row goes once, to all replicas, and comes back summed. A ring is as fast as its slowest link."""
    seconds = 0.0
    reduced, sent = ALL_REDUCES_PER_LAYER * 2 * (devices - 1) / devices, 2 * (num_sharing - 1)
    for rows, num_devices in ((reduced, devices), (sent, devices * num_sharing)):
        if rows:
            per_s = link_per_s(spec, is_beyond_node=spans_nodes(spec, num_devices)) * reach.interconnect
            seconds += rows * shape.hidden * each / per_s
    return seconds


def _layer_s(layer: LayerShape, devices: int, reach: Attainable) -> float:
    experts_s = reach.expert_layer_s if layer.has_experts else 0.0
    reduced_s = ALL_REDUCES_PER_LAYER * reach.all_reduce_s if devices > 1 else 0.0
    return experts_s + layer.num_blocks / 2 * (reach.layer_s + reduced_s)


def check_split(shape: DecoderShape, tensor_parallel: int) -> None:
    """Raises ConfigError where the key-value heads cannot be shared out over so many devices, nor copied so that each
    has one (as engines/jax_moe does for 4 heads on 8 devices). Where the cache is of all heads together, each device
    keeps it, and the query heads are shared out."""
    if shape.layers and shape.num_heads % tensor_parallel == 0:
        return
    heads = [count for count in range(1, shape.num_heads + 1) if shape.num_heads % count == 0]
    allowed = [count for count in heads if shape.num_kv_heads % count == 0 or count % shape.num_kv_heads == 0]
    if tensor_parallel not in allowed:
        raise ConfigError(
            f"tensor parallel {tensor_parallel}: {shape.name} has {shape.num_kv_heads} key-value heads to share out; "
            f"want one of {', '.join(map(str, allowed))}"
        )


def _per_device(spec: HardwareSpec, key: str, figure: Figure | None) -> float:
    if figure is None:
        raise ConfigError(f"hardware {spec.name!r} states no peak.{key}; the cost model needs it")
    return figure.value / spec.devices_per_chip
