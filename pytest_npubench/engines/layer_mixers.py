"""How the layers of a config.json mix tokens: attention with its heads, windows and indices, or a state of fixed size,
each from the keys that it has.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_npubench.engines.decoder_layers import (
    NO_MIXER,
    Mixer,
    grouped_attention,
    latent_attention,
    with_index,
)
from pytest_npubench.engines.layer_pattern import MixerKind, UnknownLayer, is_indexed
from pytest_npubench.engines.layered_families import GIVEN_NAMES, LayeredFamily
from pytest_npubench.engines.state_layers import (
    both,
    channel_delta_rule,
    delta_rule,
    lightning_attention,
    selective_state_space,
    short_convolution,
    state_space,
)
from pytest_npubench.errors import ConfigError

Config = Mapping[str, Any]
MOST_OF_ANY, MOST = 10**8, {"num_hidden_layers": 10**4}
"""The largest figure of a config that is taken for one, and those of some keys."""
LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
STATE_KEYS = ("ssm_state_size", "conv_L_cache", "linear_num_value_heads", "linear_num_heads")


class MixerFigures:
    """The figures of one file, its keys by one name for each meaning (layered_families.py)."""

    def __init__(self, config: Config, family: LayeredFamily, path: Path) -> None:
        self._config, self._family, self._path = config, family, path
        self.is_latent = self.value("kv_lora_rank", None) is not None
        names = config.get("layer_types") or config.get("block_configs")
        if config.get("num_hidden_layers") is None and isinstance(names, list | str):
            self.num_layers = len(names)
        else:
            self.num_layers = self.whole("num_hidden_layers")
        self.hidden, self.num_heads = self.whole("hidden_size"), self.whole("num_attention_heads")
        self.head_dim = self.whole("v_head_dim" if self.is_latent else "head_dim", self.hidden // self.num_heads)
        given = {key: value for key, value in config.items() if value is not None}
        self._of = family, path
        self._patterned = {**family.missing, **given}
        self._has_state = any(key in self._patterned for key in STATE_KEYS) and not family.is_parallel
        number = self.value("num_experts", 0)
        self._has_experts = number != 0 and number != 1 and self.value("enable_moe_block", True) is not False
        self._num_experts = self.whole("num_experts") if self._has_experts else 0
        blocks = (self.value("index_topk_blocks", 0) or 0) * (self.value("index_block_size", 0) or 0)
        chosen = self.value("index_topk", None) or blocks
        self._has_index = bool(chosen and self.value("index_head_dim", None))
        is_used = self._has_index or self.value("use_sliding_window", True) is not False
        stated = self.value("sliding_window", None) or self.value("attention_chunk_size", None)
        window = chosen if self._has_index else stated
        self._stated_window = self.whole("_", window) if window and is_used else None
        context = self.whole("max_position_embeddings", MOST_OF_ANY)
        self._window = self._stated_window if self._stated_window and self._stated_window < context else None
        self._has_windows = self._window is not None and not self._has_index

    def value(self, key: str, missing: Any) -> Any:
        given = self._config.get(key)
        return self._family.missing.get(key, missing) if given is None else given

    def whole(self, key: str, missing: Any = "missing") -> int:
        """Raises ConfigError for what is no whole number above 0."""
        figure, most = self.value(key, missing), MOST.get(key, MOST_OF_ANY)
        if not isinstance(figure, int) or isinstance(figure, bool) or not 1 <= figure <= most:
            shown = self._config.get(GIVEN_NAMES, {}).get(key, key)
            raise ConfigError(f"{self._path}: {shown} is {figure!r}; want a whole number from 1 to {most}")
        return figure

    @property
    def num_kv_heads(self) -> int:
        return self.whole("num_key_value_heads", self.num_heads)

    def mixer(self, kind: MixerKind, index: int) -> Mixer:
        if kind == "none":
            return NO_MIXER
        if kind == "state":
            return self._state()
        attention = self._latent(index) if self.is_latent else self._attention(index, has_window=kind == "window")
        return both(attention, self._state()) if kind == "both" else attention

    def _latent(self, index: int) -> Mixer:
        kv_rank, nope, rope, value = map(self.whole, LATENT)
        rank = None if self.value("q_lora_rank", None) is None else self.whole("q_lora_rank")
        mixer = latent_attention(
            hidden=self.hidden,
            num_heads=self.num_heads,
            query_rank=rank,
            kv_rank=kv_rank,
            nope=nope,
            rope=rope,
            value=value,
        )
        if self.value("attention_bias", False):
            biases = (rank or 0) + kv_rank + rope + self.hidden
            mixer |= Mixer(small_parameters=mixer["small_parameters"] + biases)
        return self._indexed(mixer, index, query_rank=rank)

    def _indexed(self, mixer: Mixer, index: int, *, query_rank: int | None) -> Mixer:
        """With the layer's index, where it has one of its own."""
        if not self.is_indexed(index) or not self._computes_index(index):
            return mixer
        return with_index(
            mixer,
            hidden=self.hidden,
            query_rank=query_rank,
            num_heads=self.whole("index_n_heads"),
            head_dim=self.whole("index_head_dim"),
        )

    def is_indexed(self, index: int) -> bool:
        return self._has_index and is_indexed(self._patterned, index)

    def _computes_index(self, index: int) -> bool:
        """Whether a layer has an index, and does not take the choice of the layer before it."""
        kinds = self.value("indexer_types", None) or self.value("index_topk_pattern", None)
        if kinds is not None:
            return str(kinds[index]) in ("full", "F")
        offset = self.value("index_skip_topk_offset", 2)
        return bool(max(index - offset + 1, 0) % (self.value("index_topk_freq", 1) or 1) == 0)

    def _attention(self, index: int, *, has_window: bool) -> Mixer:
        """Heads of layers with a window, or without one, may be others."""
        prefix = "swa_" if has_window else "global_"
        of_layer = (self.value("per_layer_config", None) or {}).get(str(index), {})
        heads = of_layer.get("num_attention_heads") or self.whole(f"{prefix}num_attention_heads", self.num_heads)
        kv_key = "swa_num_key_value_heads" if has_window else "num_global_key_value_heads"
        kv_heads = of_layer.get("num_key_value_heads") or self.whole(kv_key, self.num_kv_heads)
        width = of_layer.get("head_dim") or self.whole(f"{prefix}head_dim", self.head_dim)
        values = self.whole(f"{prefix}v_head_dim", self.value("v_head_dim", width))
        mixer = self.grouped(heads, kv_heads, width, values)
        without = 0
        if self._shares_kv(index):
            without = kv_heads * (width + values)
            mixer |= Mixer(shares_kv=True, small_parameters=mixer["small_parameters"] - width)
        elif self.value("attention_k_eq_v", False) and not has_window:
            without = kv_heads * values
        sinks = self.value(f"add_{'swa' if has_window else 'full'}_attention_sink_bias", False)
        mixer |= Mixer(
            attention_parameters=mixer["attention_parameters"] - self.hidden * without,
            small_parameters=mixer["small_parameters"] + bool(sinks) * heads,
        )
        return self._indexed(mixer, index, query_rank=None)

    def grouped(self, heads: int, kv_heads: int, width: int, values: int) -> Mixer:
        if heads % kv_heads:
            raise ConfigError(f"{self._path}: num_key_value_heads is {kv_heads}; want a divisor of {heads}")
        family = self._family
        mixer = grouped_attention(
            hidden=self.hidden, num_heads=heads, num_kv_heads=kv_heads, head_dim=width, value_dim=values
        )
        has_bias = self.value("attention_bias", False)
        has_inner_bias = has_bias or self.value("qkv_bias", family.qkv_bias)
        biases = bool(has_inner_bias) * (heads * width + kv_heads * (width + values))
        biases += bool(self.value("attention_out_bias", has_bias and family.has_output_bias)) * self.hidden
        used = self.value("use_qk_norm", None)
        kind = family.qk_norm if used is None else family.used_qk_norm if used else ""
        norms = {"": 0, "head": 2 * width, "all": (heads + kv_heads) * width}[kind]
        gate = {"": 0, "value": heads * values, "head": heads}[family.output_gate]
        return mixer | Mixer(
            attention_parameters=mixer["attention_parameters"] + self.hidden * gate, small_parameters=biases + norms
        )

    def _state(self) -> Mixer:
        """By the keys of the state. Raises UnknownLayer where there are none."""
        mixer = self._state_of_keys()
        is_wide = str(self.value("mamba_ssm_dtype", "")).endswith("float32") or self.value("linear_num_heads", None)
        return mixer if is_wide else mixer | Mixer(float32_values=0)

    def _state_of_keys(self) -> Mixer:
        hidden, whole, value = self.hidden, self.whole, self.value
        if value("linear_num_value_heads", None) is not None:
            return delta_rule(
                hidden=hidden,
                num_key_heads=whole("linear_num_key_heads"),
                num_value_heads=whole("linear_num_value_heads"),
                key_dim=whole("linear_key_head_dim"),
                value_dim=whole("linear_value_head_dim"),
                kernel=whole("linear_conv_kernel_dim"),
            )
        if value("linear_num_heads", None) is not None:
            return channel_delta_rule(
                hidden=hidden,
                num_heads=whole("linear_num_heads"),
                head_dim=whole("linear_head_dim"),
                kernel=whole("linear_conv_kernel_dim"),
            )
        expand = value("expand", 2)
        bias = bool(value("mamba_proj_bias", False)) or bool(value("use_bias", False))
        conv_bias = bool(value("use_conv_bias", True))
        if value("mamba_num_heads", None) is not None:
            heads, width = whole("mamba_num_heads"), value("mamba_head_dim", "auto")
            inner = value("mamba_d_ssm", None) or int(expand * hidden)
            return state_space(
                hidden=hidden,
                num_heads=heads,
                head_dim=inner // heads if width == "auto" else whole("mamba_head_dim"),
                state=whole("ssm_state_size"),
                num_groups=whole("n_groups", 1),
                kernel=whole("conv_kernel", 4),
                conv_bias=conv_bias,
                input_bias=bias,
                output_bias=bool(value("projectors_bias", bias)),
                has_norm=bool(value("mamba_rms_norm", not self._family.is_parallel)),
            )
        if value("ssm_state_size", None) is not None:
            rank = value("mamba_dt_rank", "auto")
            return selective_state_space(
                hidden=hidden,
                inner=expand * hidden,
                state=whole("ssm_state_size"),
                rank=-(-hidden // 16) if rank == "auto" else whole("mamba_dt_rank"),
                kernel=whole("conv_kernel", 4),
                conv_bias=conv_bias,
                has_bias=bias,
                has_norms=True,
            )
        if value("conv_L_cache", None) is not None:
            return short_convolution(
                hidden=hidden, kernel=whole("conv_L_cache"), has_bias=bool(value("conv_bias", False))
            )
        if "minimax" in str(value("model_type", "")).lower():
            return lightning_attention(hidden=hidden, num_heads=self.num_heads, head_dim=self.head_dim)
        raise UnknownLayer("layer_types has linear attention, and no key is of its state")

    def _shares_kv(self, index: int) -> bool:
        first = self.num_layers - (self.value("num_kv_shared_layers", 0) or 0)
        return index >= first > 0
