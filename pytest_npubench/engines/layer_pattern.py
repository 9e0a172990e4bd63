"""Which of a decoder's layers have what: the keys by which config.json says so, from lists to periods.

Worked example: Nemotron-H's `"hybrid_override_pattern": "M-M*E"` is a layer with a state, a feed-forward block, another
state, attention and experts, each a layer of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

MixerKind = Literal["full", "window", "state", "both", "none"]
Config = Mapping[str, Any]

INDEXED_BLOCKS = "minimax_m3_sparse"
# a list of names, or letters, one a layer
NAMES: Mapping[str, MixerKind] = {
    "full_attention": "full",
    "attention": "full",
    "*": "full",
    "indexed_attention": "full",
    "deepseek_sparse_attention": "full",
    INDEXED_BLOCKS: "full",
    "sliding_attention": "window",
    "chunked_attention": "window",
    "linear_attention": "state",
    "mamba": "state",
    "M": "state",
    "conv": "state",
    "mlp": "none",
    "-": "none",
    "moe": "none",
    "E": "none",
}
DENSE_ALONE, EXPERTS_ALONE = ("mlp", "-"), ("moe", "E")
_KEYS = """layer_types attn_type_list attn_layer_indices full_attn_idxs full_attn_layers kda_layers attn_layer_period
    attn_layer_offset full_attention_interval hybrid_layer_pattern sliding_window_pattern _sliding_window_pattern
    no_rope_layers no_rope_layer_interval mlp_layer_types moe_layers moe_layers_enum moe_layer_freq
    first_k_dense_replace moe_layer_end_index decoder_sparse_step mlp_only_layers expert_layer_period
    expert_layer_offset sparse_attention_freq"""
PATTERN_KEYS = frozenset(_KEYS.split())
WINDOW_PATTERNS = ("sliding_window_pattern", "_sliding_window_pattern", "no_rope_layer_interval")


class UnknownLayer(ValueError):
    """What a key says of a layer is no kind that is modelled."""


def mixer_kind(config: Config, index: int, *, has_state: bool, has_window: bool) -> MixerKind:
    """How the layer at an index, from 0, mixes tokens. has_state, has_window: whether the file has figures of either.
    Raises UnknownLayer."""
    if (names := config.get("layer_types")) is not None:
        return _of_name(_entry(config, "layer_types", index), names)
    if (kinds := config.get("attn_type_list")) is not None:
        return "full" if kinds and _entry(config, "attn_type_list", index) else "state"
    for key, first in (("attn_layer_indices", 0), ("full_attn_idxs", 0), ("full_attn_layers", 1)):
        if (listed := config.get(key)) is not None:
            return "full" if index + first in listed else "state"
    if (period := config.get("attn_layer_period")) is not None:
        return "full" if index % period == config.get("attn_layer_offset", 0) else "state"
    if has_state and (interval := config.get("full_attention_interval")):
        return "state" if (index + 1) % interval else "full"
    if has_state:
        raise UnknownLayer("a state, and no key that says which layers have it")
    return "window" if has_window and _has_window(config, index) else "full"


def _of_name(name: object, names: object) -> MixerKind:
    kind = NAMES.get(name) if isinstance(name, str) else None
    if kind is None:
        modelled = ", ".join(each for each in NAMES if len(each) > 1 or isinstance(names, str))
        raise UnknownLayer(f"layer_types has {name!r}, which is not modelled; want one of {modelled}")
    return kind


def _entry(config: Config, key: str, index: int) -> object:
    values = config[key]
    if not isinstance(values, list | str) or index >= len(values):
        raise UnknownLayer(f"{key} says nothing of layer {index}; want an entry for each layer")
    return values[index]


def _has_window(config: Config, index: int) -> bool:
    if config.get("hybrid_layer_pattern") is not None:
        return bool(_entry(config, "hybrid_layer_pattern", index))
    if config.get("no_rope_layers"):
        return bool(_entry(config, "no_rope_layers", index))
    pattern = next(filter(None, map(config.get, WINDOW_PATTERNS)), None)
    if pattern is None:
        raise UnknownLayer("sliding_window is shorter than the context, and no key says which layers have it")
    return (index + 1) % int(pattern) != 0


def is_indexed(config: Config, index: int) -> bool:
    """Whether the layer at an index, from 0, attends to what an index chooses, where the model has one. Raises
    UnknownLayer."""
    if config.get("sparse_attention_freq") is not None:
        return bool(_entry(config, "sparse_attention_freq", index))
    names = config.get("layer_types") or ()
    return INDEXED_BLOCKS not in names or _entry(config, "layer_types", index) == INDEXED_BLOCKS


def has_experts(config: Config, index: int) -> bool:
    """Whether the layer at an index has experts, where the model has some. Raises UnknownLayer."""
    if _has_single_blocks(config):
        return _entry(config, "layer_types", index) in EXPERTS_ALONE
    if config.get("mlp_layer_types") is not None:
        return _entry(config, "mlp_layer_types", index) == "sparse"
    for key in ("moe_layers", "moe_layers_enum"):
        if listed := config.get(key):
            return index in (map(int, listed.split(",")) if isinstance(listed, str) else listed)
    if isinstance(config.get("moe_layer_freq"), list):
        return bool(_entry(config, "moe_layer_freq", index))
    last = config.get("moe_layer_end_index") or -1
    return (
        (config.get("first_k_dense_replace") or 0) <= index
        and (last < 0 or index <= last)
        and index % (config.get("moe_layer_freq") or 1) == 0
        and index not in (config.get("mlp_only_layers") or ())
        and (index + 1) % (config.get("decoder_sparse_step") or 1) == 0
        and index % (config.get("expert_layer_period") or 1) == (config.get("expert_layer_offset") or 0)
    )


def has_dense_block(config: Config, index: int) -> bool:
    """Whether a layer without experts has a feed-forward block: no layer of one block that mixes tokens."""
    return not _has_single_blocks(config) or _entry(config, "layer_types", index) in DENSE_ALONE


def _has_single_blocks(config: Config) -> bool:
    """Whether what mixes tokens and what follows are layers of their own."""
    return any(name in DENSE_ALONE + EXPERTS_ALONE for name in config.get("layer_types") or ())
