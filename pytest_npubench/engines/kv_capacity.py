"""How many tokens of keys and values fit beside the weights.

    capacity = (memory x devices x USABLE_FRACTION - weights) / key-value bytes of a token

Replicas that share their experts each hold their part of those, and all other weights. Of a pipeline each stage holds
its layers with their states, the first one the embedding and what is beside the decoder, the last one the output's
projection and drafts; the fullest stage decides.

Worked example: qwen3-30b-a3b in bf16 on two H100s of 80 GB: (160e9 x 0.9 - 61.0642e9) / 98,304 = 843,666 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, gcd, inf
from typing import NamedTuple

from pytest_npubench.core.figures import DTYPES
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.errors import ConfigError

DTYPE_BYTES = {"fp32": 4.0, "tf32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
# vLLM's default gpu_memory_utilization; the rest is for activations and the runtime
USABLE_FRACTION = 0.9


def dtype_bytes(dtype: str) -> float:
    """Bytes of one weight or activation. Raises ConfigError for a type that no hardware file knows."""
    if dtype not in DTYPE_BYTES:
        raise ConfigError(f"dtype {dtype!r}; want one of {', '.join(DTYPES)}")
    return DTYPE_BYTES[dtype]


def kv_copies(shape: DecoderShape, tensor_parallel: int) -> float:
    """How often keys and values lie on the devices of a group: more often than once where there are fewer key-value
    heads than devices, as those of DeepSeek, whose cache is of all heads together."""
    return max(1.0, tensor_parallel / shape.num_kv_heads)


def state_tokens(
    shape: DecoderShape, *, tensor_parallel: int, dtype: str, kv_dtype: str | None = None, num_stages: int = 1
) -> int:
    """Tokens of keys and values that take as much memory as what a request keeps whatever its length. All stages
    have as many blocks as the fullest one (vLLM's get_kv_cache_configs), so that the one with the most states beside
    its keys and values decides; those without any are left out.

    Worked example: Qwen3.5-35B-A3B's states of 64.9 MB (30 layers, in fp32) are 3,169 tokens of 20,480 bytes in bf16.
    """
    each, copies = dtype_bytes(kv_dtype or dtype), kv_copies(shape, tensor_parallel)
    stages = [stage for stage, _ in stage_shapes(shape, num_stages)]
    return max(
        ceil(stage.state_bytes(dtype_bytes(dtype)) / (token_bytes * copies))
        for stage in stages
        if (token_bytes := stage.kv_bytes_per_token(each))
    )


class KvGroups(NamedTuple):
    """Groups of layers whose blocks are of one size, which several requests' tokens fill in any order: so many groups
    that keep all tokens, and so many with a window. values: of a token in a group."""

    num_full: int
    num_windowed: int
    window: int
    values: int


def kv_groups(shape: DecoderShape) -> KvGroups | None:
    """As vLLM's hybrid KV cache manager groups layers of one width (docs.vllm.ai, design/hybrid_kv_cache_manager): by
    as many as the rarer kind has, or the other where it has less than 1.5 times as many; a group that is not full is
    padded. Layers of several widths are counted by their values. None: all layers keep all tokens, as those do whose
    window is what an index chooses.

    Worked example: Gemma 3 27B has 10 layers without and 52 with a window of 1,024: a group of 10, and 6 of up to 10.
    """
    layers = [layer for layer in shape.all_layers if layer.cached_values]
    windowed = [layer.cached_values for layer in layers if layer.window]
    if not windowed or shape.sliding_window is None or any(layer.index_values for layer in layers):
        return None
    full = [layer.cached_values for layer in layers if not layer.window]
    if len({*full, *windowed}) > 1:
        values = gcd(sum(full), sum(windowed))
        return KvGroups(sum(full) // values, sum(windowed) // values, shape.sliding_window, values)
    fewer, more = sorted((len(full), len(windowed)))
    size = more if more < 1.5 * fewer or not fewer else fewer
    return KvGroups(ceil(len(full) / size), ceil(len(windowed) / size), shape.sliding_window, size * windowed[0])


def stage_layers(num_layers: int, number: int) -> Sequence[tuple[int, int]]:
    """Layers [first, stop) of each stage of a pipeline, dealt out as vLLM does: evenly, and one more to the stages
    before the last, from the last of them on. Raises ConfigError for more stages than layers."""
    each, left = divmod(num_layers, number)
    if not each:
        raise ConfigError(f"pipeline parallel {number}: the model has {num_layers} layers; want at most a stage each")
    stops = [each * stage + max(0, left - max(0, number - 1 - stage)) for stage in range(number)]
    return tuple(zip(stops, (*stops[1:], num_layers), strict=True))


def stage_shapes(shape: DecoderShape, number: int) -> Sequence[tuple[DecoderShape, int]]:
    """The layers of each stage as a decoder, and how many tables of the vocabulary lie there."""
    stages = stage_layers(shape.num_layers, number)
    layers = shape.all_layers
    if number == 1:
        return ((shape, 1 if shape.tied_embeddings else 2),)
    return tuple(
        (
            replace(
                shape,
                num_layers=stop - first,
                layers=layers[first:stop],
                other_parameters=0 if first else shape.other_parameters,
                draft_parameters=shape.draft_parameters if stop == len(layers) else 0,
            ),
            (first == 0) + (stop == len(layers)),
        )
        for first, stop in stages
    )


def default_kv_capacity_tokens(
    shape: DecoderShape,
    spec: HardwareSpec,
    *,
    tensor_parallel: int,
    dtype: str,
    kv_dtype: str | None = None,
    num_sharing: int = 1,
    num_stages: int = 1,
    usable_fraction: float = USABLE_FRACTION,
) -> int:
    """Tokens that fit on `tensor_parallel` devices, a replica of num_sharing that share their experts, or each of so
    many stages of a pipeline; kv_dtype: of keys and values, where it is not dtype; usable_fraction: of the memory, by
    weights and cache. Raises ConfigError where the memory is not published, or where the weights leave no room for a
    token."""
    memory = spec.peak.memory_bytes
    if memory is None:
        raise ConfigError(f"hardware {spec.name!r} states no peak.memory_bytes; give the KV capacity in tokens")
    usable_bytes = memory.value / spec.devices_per_chip * tensor_parallel * usable_fraction
    each, rooms = dtype_bytes(dtype), []
    for stage, num_tables in stage_shapes(shape, num_stages):
        first, stop = stage.expert_layers(0, stage.num_layers)
        experts = (stop - first) * stage.num_experts * stage.expert_bytes(each)
        tables = (num_tables - (1 if stage.tied_embeddings else 2)) * stage.head_bytes(each)
        weight_bytes = stage.weight_bytes(each) + tables - experts * (num_sharing - 1) / num_sharing
        token_bytes = stage.kv_bytes_per_token(dtype_bytes(kv_dtype or dtype)) * kv_copies(shape, tensor_parallel)
        room_bytes = usable_bytes - weight_bytes
        # a stage of layers with states alone keeps no tokens, and its weights want room all the same
        rooms.append((room_bytes / token_bytes if token_bytes else room_bytes * inf, weight_bytes))
    room, weight_bytes = min(rooms)
    if room < 1:
        raise ConfigError(
            f"{shape.name} in {dtype} has {weight_bytes / 1e9:.1f} GB of weights; {tensor_parallel} x {spec.name} can "
            f"use {usable_bytes / 1e9:.1f} GB ({usable_fraction:.0%} of its memory); want more devices or fewer bytes"
        )
    return int(room)
