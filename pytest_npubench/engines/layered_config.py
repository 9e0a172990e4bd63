"""config.json of families whose layers differ: attention over compressed keys and values, windows on some layers, dense
layers before those with experts, shared experts. They are read to plan with; no engine here runs them.

A layer is counted (decoder_layers.py) from the keys that its family has. What a key that is left out means is stated in
the family's `missing`, as transformers has it; kimi_k2 is DeepSeek-V3's class under another name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pytest_npubench.engines.config_keys import CONFIG_FILE, unread
from pytest_npubench.engines.decoder_layers import LayerShape, grouped_attention, latent_attention
from pytest_npubench.engines.shapes import DecoderShape, ExpertShape
from pytest_npubench.engines.weight_bits import weight_bits
from pytest_npubench.errors import ConfigError

Config = Mapping[str, Any]
MOST = 10**8
LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
_FIGURES = """vocab_size hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim
    intermediate_size
    rms_norm_eps rope_theta tie_word_embeddings attention_bias q_lora_rank kv_lora_rank qk_nope_head_dim
    qk_rope_head_dim v_head_dim n_routed_experts num_experts moe_intermediate_size n_shared_experts
    shared_expert_intermediate_size first_k_dense_replace moe_layer_freq mlp_only_layers decoder_sparse_step
    sliding_window sliding_window_pattern _sliding_window_pattern layer_types qkv_bias"""
# which experts are chosen, how, and what is done with the results: the same work whatever they say
_OF_VALUES = """hidden_act hidden_activation norm_topk_prob routed_scaling_factor n_group topk_group topk_method
    scoring_func seq_aux aux_loss_alpha ep_size rope_interleave query_pre_attn_scalar final_logit_softcapping
    attn_logit_softcapping rope_local_base_freq cache_implementation output_router_logits clip_qkv"""
READ = frozenset(f"{_FIGURES} {_OF_VALUES}".split())


@dataclass(frozen=True, slots=True, kw_only=True)
class LayeredFamily:
    """num_norms: of a layer, each of the hidden width. qk_norm: over each head, or over all heads together. experts:
    the key of their number. missing: what the class takes for a key that a file leaves out."""

    class_name: str
    num_norms: int = 2
    qk_norm: Literal["", "head", "all"] = ""
    qkv_bias: bool = False
    experts: str = ""
    width: str = "moe_intermediate_size"
    has_shared_gate: bool = False
    missing: Mapping[str, Any] = field(default_factory=dict)


FAMILIES: Mapping[str, LayeredFamily] = {
    "deepseek_v2": LayeredFamily(class_name="DeepseekV2ForCausalLM", experts="n_routed_experts"),
    "deepseek_v3": LayeredFamily(class_name="DeepseekV3ForCausalLM", experts="n_routed_experts"),
    "kimi_k2": LayeredFamily(class_name="DeepseekV3ForCausalLM", experts="n_routed_experts"),
    "glm4_moe": LayeredFamily(class_name="Glm4MoeForCausalLM", experts="n_routed_experts"),
    "qwen2_moe": LayeredFamily(
        class_name="Qwen2MoeForCausalLM", qkv_bias=True, experts="num_experts", has_shared_gate=True
    ),
    "olmoe": LayeredFamily(
        class_name="OlmoeForCausalLM", qk_norm="all", experts="num_experts", width="intermediate_size"
    ),
    "olmo2": LayeredFamily(class_name="Olmo2ForCausalLM", qk_norm="all"),
    "gemma2": LayeredFamily(
        class_name="Gemma2ForCausalLM",
        num_norms=4,
        missing={"tie_word_embeddings": True, "head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 2},
    ),
    "gemma3_text": LayeredFamily(
        class_name="Gemma3ForCausalLM",
        num_norms=4,
        qk_norm="head",
        missing={"tie_word_embeddings": True, "head_dim": 256, "sliding_window": 4096, "sliding_window_pattern": 6},
    ),
}


def layered_shape(config: Config, name: str, path: Path) -> DecoderShape | None:
    """The shape of a model of these families, None of another. Raises ConfigError naming path, key and value."""
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        return None
    if config.get("architectures") not in (None, [family.class_name]):
        raise ConfigError(
            f"{path}: architectures is {config['architectures']!r}; want [{family.class_name!r}]: other classes have "
            "other layers"
        )
    figures = _Figures(config, family, path)
    bits, doubts = weight_bits(config, path)
    layers = tuple(figures.layer(index) for index in range(figures.whole("num_hidden_layers")))
    has_experts = any(layer.has_experts for layer in layers)
    if figures.is_latent and bits is not None:
        doubts = (*doubts, "projections of compressed keys and values are counted with the bits of all others")
    return DecoderShape(
        name=name,
        source=f"{CONFIG_FILE} of {name}",
        vocab_size=figures.whole("vocab_size"),
        hidden=figures.hidden,
        num_layers=len(layers),
        num_heads=figures.num_heads,
        num_kv_heads=1 if figures.is_latent else figures.num_kv_heads,
        head_dim=figures.head_dim,
        intermediate=figures.whole(family.width if has_experts else "intermediate_size"),
        rope_theta=float(config.get("rope_theta") or 1e4),
        rms_eps=float(config.get("rms_norm_eps") or 1e-6),
        tied_embeddings=bool(figures.value("tie_word_embeddings", False)),
        sliding_window=next((layer.window for layer in layers if layer.window), None),
        experts=figures.experts if has_experts else None,
        layers=layers,
        weight_bits=bits,
        doubts=(*doubts, *unread(config, READ)),
    )


class _Figures:
    """The figures of one file."""

    def __init__(self, config: Config, family: LayeredFamily, path: Path) -> None:
        self._config, self._family, self._path = config, family, path
        self.is_latent = self.value("kv_lora_rank", None) is not None
        self.hidden, self.num_heads = self.whole("hidden_size"), self.whole("num_attention_heads")
        self.num_kv_heads = self.whole("num_key_value_heads", self.num_heads)
        self.head_dim = self.whole("v_head_dim" if self.is_latent else "head_dim", self.hidden // self.num_heads)

    def value(self, key: str, missing: Any) -> Any:
        given = self._config.get(key)
        return self._family.missing.get(key, missing) if given is None else given

    def whole(self, key: str, missing: Any = "missing") -> int:
        """Raises ConfigError for what is no whole number above 0."""
        figure = self.value(key, missing)
        if not isinstance(figure, int) or isinstance(figure, bool) or not 1 <= figure <= MOST:
            raise ConfigError(f"{self._path}: {key} is {figure!r}; want a whole number from 1 to {MOST}")
        return figure

    @property
    def experts(self) -> ExpertShape:
        return ExpertShape(
            num_experts=self.whole(self._family.experts), experts_per_token=self.whole("num_experts_per_tok")
        )

    def layer(self, index: int) -> LayerShape:
        """The layer at an index, from 0."""
        attention = self._latent() if self.is_latent else self._grouped()
        small = attention.pop("small_parameters") + self._family.num_norms * self.hidden
        has_experts = self._has_experts(index)
        return LayerShape(
            **attention,
            small_parameters=small,
            dense_parameters=self._shared_experts()
            if has_experts
            else 3 * self.hidden * self.whole("intermediate_size"),
            router_parameters=self._router() if has_experts else 0,
            has_experts=has_experts,
            window=self.whole("sliding_window") if self._has_window(index) else None,
        )

    def _latent(self) -> dict[str, int]:
        kv_rank, nope, rope, value = map(self.whole, LATENT)
        rank = self.value("q_lora_rank", None)
        return latent_attention(
            hidden=self.hidden,
            num_heads=self.num_heads,
            query_rank=None if rank is None else self.whole("q_lora_rank"),
            kv_rank=kv_rank,
            nope=nope,
            rope=rope,
            value=value,
        )

    def _grouped(self) -> dict[str, int]:
        heads, kv_heads, width = self.num_heads, self.num_kv_heads, self.head_dim
        if heads % kv_heads:
            raise ConfigError(f"{self._path}: num_key_value_heads is {kv_heads}; want a divisor of {heads}")
        has_bias = self._family.qkv_bias if self.value("qkv_bias", None) is None else bool(self.value("qkv_bias", None))
        has_bias = has_bias or bool(self.value("attention_bias", False))
        norms = {"": 0, "head": 2 * width, "all": (heads + kv_heads) * width}[self._family.qk_norm]
        if self.value("use_qk_norm", False):
            norms = 2 * width
        fields = grouped_attention(hidden=self.hidden, num_heads=heads, num_kv_heads=kv_heads, head_dim=width)
        return fields | {"small_parameters": norms + has_bias * (heads + 2 * kv_heads) * width}

    def _has_experts(self, index: int) -> bool:
        if not self._family.experts or self.value(self._family.experts, None) is None:
            return False
        first, every = self.value("first_k_dense_replace", 0), self.value("moe_layer_freq", 1)
        step = self.value("decoder_sparse_step", 1)
        return (
            index >= first
            and index % every == 0
            and index not in self.value("mlp_only_layers", ())
            and (index + 1) % step == 0
        )

    def _shared_experts(self) -> int:
        width = self.value("shared_expert_intermediate_size", 0) or (
            (self.value("n_shared_experts", 0) or 0) * self.whole(self._family.width)
        )
        return 3 * self.hidden * int(width) + (self.hidden if self._family.has_shared_gate else 0)

    def _router(self) -> int:
        return self.hidden * self.whole(self._family.experts)

    def _has_window(self, index: int) -> bool:
        kinds = self.value("layer_types", None)
        if kinds is not None:
            kind = kinds[index] if isinstance(kinds, list) and index < len(kinds) else None
            if kind not in ("full_attention", "sliding_attention"):
                raise ConfigError(
                    f"{self._path}: layer_types has {kind!r} for layer {index}; want full or sliding ones"
                )
            return bool(kind == "sliding_attention")
        pattern = self.value("sliding_window_pattern", self.value("_sliding_window_pattern", None))
        return pattern is not None and (index + 1) % int(pattern) != 0
