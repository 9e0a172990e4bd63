"""config.json of decoders whose layers differ: attention over compressed keys and values, windows or states of fixed
size on some layers, dense layers before those with experts, shared experts. They are read to plan with; no engine here
runs them.

A layer is counted (decoder_layers.py, state_layers.py) from keys alone; layer_pattern.py says what each layer has, and
layered_families.py what no key says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_npubench.engines.config_keys import CONFIG_FILE, unread
from pytest_npubench.engines.decoder_layers import NO_MIXER, LayerShape, Mixer
from pytest_npubench.engines.layer_mixers import MOST_OF_ANY, MixerFigures
from pytest_npubench.engines.layer_pattern import (
    PATTERN_KEYS,
    UnknownLayer,
    has_dense_block,
    has_experts,
    mixer_kind,
)
from pytest_npubench.engines.layered_families import FAMILIES, GIVEN_NAMES, LayeredFamily, with_own_names
from pytest_npubench.engines.shapes import DecoderShape, ExpertShape
from pytest_npubench.engines.weight_bits import weight_bits
from pytest_npubench.errors import ConfigError

Config = Mapping[str, Any]
SEARCHED_STEP = 256
"""A width of Nemotron-NAS is a multiple of this."""
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation", "mlp_hidden_act")
LANGUAGE_MODELS = ("ForCausalLM", "ForConditionalGeneration")
# what of a file changes the answer, and is not modelled
NOT_MODELLED: Mapping[str, str] = {
    "compress_ratios": "attention over merged keys",
    "attn_res_block_size": "attention over residuals",
    "altup_num_inputs": "several residual streams",
    "hc_mult": "several residual streams",
    "use_mla": "compressed keys and values without their ranks",
    "use_cla": "keys and values that groups of layers share",
    "num_loops": "layers that run several times",
}
# values that the layers are counted with; with others they are not modelled
EXPECTED: Mapping[str, tuple[Any, ...]] = {
    "attn_output_gate": (True,),
    "attention_output_gate": (False,),
    "use_sparse_attention": (True,),
    "sparse_init_block": (0,),
    "sparse_local_block": (1,),
}
_FIGURES = """vocab_size hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim v_head_dim
    intermediate_size dense_intermediate_size tie_word_embeddings attention_bias attention_out_bias
    qkv_bias mlp_bias use_bias bias use_qk_norm qk_norm_type q_lora_rank kv_lora_rank qk_nope_head_dim
    qk_rope_head_dim index_topk index_n_heads index_head_dim indexer_types index_topk_freq
    index_skip_topk_offset index_topk_pattern index_topk_blocks index_block_size use_sparse_attention
    sparse_init_block sparse_local_block sparse_disable_index_value index_local_blocks
    num_experts moe_intermediate_size n_shared_experts shared_expert_intermediate_size moe_latent_size
    sliding_window use_sliding_window attention_chunk_size swa_num_attention_heads swa_num_key_value_heads
    swa_head_dim swa_v_head_dim add_swa_attention_sink_bias add_full_attention_sink_bias global_head_dim
    num_global_key_value_heads attention_k_eq_v num_kv_shared_layers use_double_wide_mlp enable_moe_block
    hidden_size_per_layer_input vocab_size_per_layer_input mamba_num_heads mamba_head_dim mamba_d_ssm
    ssm_state_size n_groups conv_kernel expand use_conv_bias mamba_proj_bias mamba_rms_norm mamba_dt_rank
    mamba_ssm_dtype linear_num_value_heads linear_num_key_heads linear_key_head_dim linear_value_head_dim
    linear_conv_kernel_dim conv_L_cache conv_bias block_multiple_of block_ffn_dim_multiplier
    block_auto_adjust_ff_dim projectors_bias lm_head_bias block_configs num_nextn_predict_layers
    mtp_layers_block_type mtp_transformer_layers attn_output_gate attention_output_gate gating _norms
    per_layer_config linear_num_heads linear_head_dim multi_query parallel_attn new_decoder_architecture
    num_ln_in_parallel_attn alibi"""
_OTHERS = """qk_norm_type mamba_ssm_dtype mamba_head_dim mamba_dt_rank indexer_types index_topk_pattern block_configs
    sparse_disable_index_value mtp_layers_block_type per_layer_config gating"""
NUMBERS = frozenset(_FIGURES.split()) - frozenset(_OTHERS.split())
OF_BLOCKS = frozenset(("attention", "ffn", "no_op", "replace_with_linear", "n_heads_in_group", "ffn_mult"))
"""Of an entry of block_configs."""
# which experts are chosen, how, and what is done with values: the same work whatever they say
OF_VALUES = """hidden_act hidden_activation mlp_hidden_act activation mamba_hidden_act ffn_act_fn rms_norm_eps
    layer_norm_eps layer_norm_epsilon layernorm_epsilon norm_eps norm_epsilon rope_theta rope_local_base_freq
    swa_rope_theta rope_interleave indexer_rope_interleave rotary_dim use_mrope position_embedding_type no_rope_theta
    norm_topk_prob routed_scaling_factor n_group topk_group topk_method scoring_func seq_aux aux_loss_alpha ep_size
    use_routing_bias moe_router_dtype use_moe_router_bias moe_router_scaling_factor moe_router_use_sigmoid
    moe_router_activation_func moe_renormalize num_expert_group use_grouped_topk use_expert_bias router_aux_loss_coef
    query_pre_attn_scalar final_logit_softcapping attn_logit_softcapping cache_implementation output_router_logits
    clip_qkv use_gemma_norm swiglu_limit swiglu_alpha swiglu_limits swiglu_limits_shared attention_value_scale
    qk_head_dim use_bidirectional_attention output_gate_type attention_multiplier embedding_multiplier logits_scaling
    residual_multiplier lm_head_multiplier mlp_multipliers key_multiplier attention_in_multiplier
    attention_out_multiplier ssm_multipliers ssm_in_multiplier ssm_out_multiplier logit_scale attn_temperature_tuning
    floor_scale attn_scale full_attn_alpha_factor full_attn_beta_factor linear_attn_alpha_factor linear_attn_beta_factor
    mlp_alpha_factor mlp_beta_factor layernorm_full_attention_alpha layernorm_full_attention_beta
    layernorm_linear_attention_alpha layernorm_linear_attention_beta layernorm_mlp_alpha layernorm_mlp_beta postnorm
    shared_moe_mode mla_use_nope time_step_limit time_step_min time_step_max time_step_floor time_step_rank chunk_size
    mamba_chunk_size use_mamba_kernels mamba_norm_before_gate rescale_prenorm_residual residual_in_fp32
    num_logits_to_keep block_size moe_shared_expert_overlap mtp_use_dedicated_embeddings use_mtp
    index_share_for_mtp_iteration moe_norm_min moe_gate moe_capacity moe_jitter_eps moe_loss_weight
    moe_normalize_expert_weights input_jitter_noise for_llm_class moe_use_aux_free init_method normalization_function
    layer_switch order_of_interleaved_layers rotary_pct use_embedding_sharing use_gated_activation use_parallel_block
    use_parallel_embedding cla_share_factor add_classification_head class_num norm_type pool_type use_rotary_pos_emb
    moe_drop_tokens moe_random_routing_dropped_token org_vocab_size dense_list enable_lm_head_fp32 group_limited_greedy
    use_mixed_mlp_moe sparse_score_type block_dim block_mlp_init_scale block_norm_eps block_out_init_scale
    block_use_swiglu block_use_xavier_init conv_dim conv_dim_out conv_use_xavier_init use_pos_enc mamba_use_mlp
    mlp_expansion_factor apply_residual_connection_post_layernorm use_associative_scan use_mambapy moe_aux_loss_coef
    z_loss_coefficient rope_scaling_factor"""
READ = frozenset(f"{_FIGURES} {OF_VALUES}".split()) | PATTERN_KEYS | {GIVEN_NAMES}


def layered_shape(config: Config, name: str, path: Path) -> DecoderShape:
    """The shape of a model, with the doubts of what is not counted. Raises ConfigError naming path, key and value."""
    try:
        return _counted_shape(config, name, path)
    except UnknownLayer as error:
        raise ConfigError(f"{path}: {error}") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
        raise ConfigError(f"{path}: layers cannot be counted from its figures: {error!r}") from None


def _counted_shape(config: Config, name: str, path: Path) -> DecoderShape:
    plain = _with_numbers(with_own_names(config), path)
    family = _family(plain, path)
    figures = _Figures(plain, family, path)
    bits, doubts = weight_bits(config, path)
    layers = tuple(figures.layer(index) for index in range(figures.num_layers))
    draft_parameters, drafts = figures.drafts()
    windows = {layer.window for layer in layers if layer.window}
    if len(windows) > 1:
        raise ConfigError(f"{path}: windows of {sorted(windows)} tokens; want one width of all layers that have one")
    if not any(layer.cached_values for layer in layers):
        raise ConfigError(f"{path}: no layer keeps keys and values; want a model with attention")
    if states := sum(layer.state_bytes(2) for layer in layers):
        doubts = (*doubts, f"states of {states / 1e6:.1f} MB (in 16 bits) of each request take KV blocks of their own")
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
        intermediate=figures.expert_width if has_experts else max(1, layers[0].dense_parameters // 3 // figures.hidden),
        rope_theta=1e4,
        rms_eps=1e-6,
        tied_embeddings=bool(figures.value("tie_word_embeddings", False)),
        sliding_window=next(iter(windows), None),
        experts=figures.experts if has_experts else None,
        layers=layers,
        other_parameters=figures.other_parameters,
        draft_parameters=draft_parameters,
        weight_bits=bits,
        doubts=(*doubts, *drafts, *figures.doubts(), *unread(plain, READ)),
    )


def _with_numbers(config: Config, path: Path) -> Config:
    """The file with a number for a list that repeats one. Raises ConfigError for a figure that is no number."""
    numbers = {}
    for key in filter(NUMBERS.__contains__, config):
        figure = config[key]
        if isinstance(figure, list) and figure and all(each == figure[0] for each in figure):
            figure = figure[0]
        if figure is not None and not (isinstance(figure, int | float) and 0 <= figure <= MOST_OF_ANY):
            shown = config[GIVEN_NAMES].get(key, key)
            raise ConfigError(f"{path}: {shown} is {config[key]!r}; want a number from 0 to {MOST_OF_ANY}")
        numbers[key] = figure
    return {**config, **numbers}


def _family(config: Config, path: Path) -> LayeredFamily:
    """What the file's class knows. Raises ConfigError for a class that is no language model, for what is not modelled,
    and for a family that is not listed where keys of it are not read."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise ConfigError(f"{path}: model_type is {model_type!r}; want a text")
    family = FAMILIES.get(model_type)
    unmodelled = [
        f"{key} ({why})"
        for key, why in NOT_MODELLED.items()
        if config.get(key) is True or config.get(key) not in (None, False, 0, 1)  # once is once, and true is not
    ]
    norm = "per_layer" if family and family.qk_norm == "all" else "per_head"
    indexed = config.get("sparse_attention_freq")
    expected = {**EXPECTED, "qk_norm_type": (norm,), "sparse_disable_index_value": (indexed,)}
    unmodelled += [
        f"{key} of {config[key]!r}"
        for key, allowed in expected.items()
        if config.get(key) is not None and config[key] not in allowed
    ]
    if unmodelled:
        raise ConfigError(f"{path}: model_type {model_type} has {'; '.join(unmodelled)}, which is not modelled")
    classes = config.get("architectures")
    prefixes = (family.classes if family else ()) or (_words(model_type),)
    wrong = []
    if classes is not None and not _is_language_model(classes, prefixes):
        wanted = f"[{prefixes[0] + LANGUAGE_MODELS[0]!r}] or another language model of its family"
        wrong.append(f"architectures is {classes!r}; want {wanted}: other classes have other layers")
    if family is None:
        unknown = f"model_type is {model_type!r}, which is not known here, and "
        acts = [
            f"{key} is {config[key]!r}: with two matrices or three" for key in ACTIVATIONS if _is_ungated(config, key)
        ]
        wrong = [unknown + why for why in (*wrong, *unread(config, READ), *acts)]
    if wrong:
        raise ConfigError(f"{path}: {wrong[0]}")
    return family or LayeredFamily()


def _is_ungated(config: Config, key: str) -> bool:
    """Whether a feed-forward block may be without a gate, which all with a SiLU have."""
    return config.get(key) not in (None, "silu", "swish", "swiglu")


def _words(model_type: str) -> str:
    return model_type.removesuffix("_text").replace("_", "").replace("-", "").replace(".", "").lower()


def _is_language_model(classes: object, prefixes: tuple[str, ...]) -> bool:
    if not isinstance(classes, list) or len(classes) != 1:
        return False
    for ending in LANGUAGE_MODELS:
        prefix = str(classes[0]).removesuffix(ending)
        if prefix != classes[0]:
            return _words(prefix) in map(_words, prefixes)
    return False


class _Figures(MixerFigures):
    """The layers of one file."""

    @property
    def expert_width(self) -> int:
        return self.whole("moe_intermediate_size" if self.value("moe_intermediate_size", None) else "intermediate_size")

    @property
    def dense_width(self) -> int:
        """Of a dense block: Granite's without experts is what stands beside experts elsewhere."""
        beside = None if self._has_experts else self.value("shared_expert_intermediate_size", None)
        key = "dense_intermediate_size" if self.value("dense_intermediate_size", None) else "intermediate_size"
        return beside or self.whole(key)

    @property
    def experts(self) -> ExpertShape:
        width = self.value("moe_latent_size", None) or self.hidden
        parameters = self._family.matrices * width * self.expert_width
        chosen = self.whole("num_experts_per_tok")
        if chosen > self._num_experts:
            wanted = f"{self._num_experts} at most, the number of experts"
            raise ConfigError(f"{self._path}: num_experts_per_tok is {chosen}; want {wanted}")
        return ExpertShape(
            num_experts=self._num_experts,
            experts_per_token=chosen,
            parameters=None if parameters == 3 * self.hidden * self.expert_width else parameters,
        )

    @property
    def other_parameters(self) -> int:
        """Beside layers, the vocabulary's tables and one norm."""
        biases = bool(self.value("lm_head_bias", False)) * self.whole("vocab_size")
        per_layer = (self.value("hidden_size_per_layer_input", 0) or 0) * self.num_layers
        tables = per_layer and per_layer * (self.whole("vocab_size_per_layer_input") + self.hidden)
        return biases + tables + per_layer // self.num_layers + (self._family.final_norms - 1) * self.hidden

    def drafts(self) -> tuple[int, tuple[str, ...]]:
        """Weights of the layers that predict further tokens, and what is said of them. Raises UnknownLayer."""
        number = self.value("num_nextn_predict_layers", 0) or 0
        if not number:
            return 0, ()
        kinds = self.value("mtp_layers_block_type", None)
        if kinds is None:
            layers = [self.layer(self.num_layers - 1)] * (self.value("mtp_transformer_layers", 1) or 1)
        else:
            like = _Figures({**self._config, "layer_types": kinds, "num_hidden_layers": len(kinds)}, *self._of)
            layers = [like.layer(index) for index in range(len(kinds))]
        experts = self._has_experts and self._num_experts * (
            self.experts.parameters or 3 * self.hidden * self.expert_width
        )
        each = sum(layer.shared_parameters + layer.small_parameters + layer.has_experts * experts for layer in layers)
        parameters = number * (each + 2 * self.hidden**2 + 3 * self.hidden)
        return parameters, (
            f"{number} layers that predict further tokens are counted in memory ({parameters / 1e9:.2f}e9 weights, "
            "which an engine without speculation leaves out) and in no iteration",
        )

    def doubts(self) -> tuple[str, ...]:
        doubts = []
        if self._window is None and (window := self._stated_window):
            doubts.append(f"windows of {window} tokens are no shorter than the context, and count as none")
        elif self.value("sliding_window", None) is None and self.value("attention_chunk_size", None):
            doubts.append(
                f"chunks of {self._window} tokens count as windows of as many: attention and cache are counted double"
            )
        if shared := sum(map(self._shares_kv, range(self.num_layers))):
            doubts.append(f"{shared} layers read keys and values of others, and keep none of their own")
        if self._config.get("model_type") not in FAMILIES:
            doubts.append(
                f"model_type {self._config.get('model_type')} is not known here: read by its keys, with Llama's norms"
            )
        parts = [part for block in self.value("block_configs", None) or () for part in (block, *block.values())]
        entries = [entry for part in parts if isinstance(part, Mapping) for entry in part.items()]
        if unread := dict.fromkeys(name for name, value in entries if value and name not in OF_BLOCKS):
            doubts.append(f"block_configs: {', '.join(unread)}: not read, whatever that changes")
        return tuple(doubts)

    def layer(self, index: int) -> LayerShape:
        """The layer at an index, from 0. Raises UnknownLayer."""
        if (blocks := self.value("block_configs", None)) is not None:
            return self._searched_layer(blocks[index])
        kind = mixer_kind(self._patterned, index, has_state=self._has_state, has_window=self._has_windows)
        mixer = self.mixer("both" if self._family.is_parallel else kind, index)
        with_experts = self._has_experts and has_experts(self._patterned, index)
        if with_experts:
            dense = self._beside_experts()
        else:
            dense = self._dense_block(index) if has_dense_block(self._patterned, index) else 0
        per_layer = self.value("hidden_size_per_layer_input", 0) or 0
        norms = self.value("_norms", self._family.num_norms) + with_experts * self._family.expert_norms
        small = (norms + bool(per_layer)) * self.hidden
        small += with_experts * self._family.has_router_bias * self._num_experts
        if dense and self.value("mlp_bias", False):
            width = dense // self._family.matrices // self.hidden
            small += (self._family.matrices - 1) * width + self.hidden
        return LayerShape(
            **mixer | Mixer(small_parameters=mixer["small_parameters"] + small),
            dense_parameters=dense + 2 * self.hidden * per_layer,
            router_parameters=with_experts * self.hidden * self._num_experts,
            has_experts=with_experts,
            window=self._window if kind == "window" or self.is_indexed(index) else None,
        )

    def _searched_layer(self, block: Mapping[str, Any]) -> LayerShape:
        """Of a decoder whose blocks were chosen one by one (Nemotron-NAS)."""
        attention, forward = block["attention"], block["ffn"]
        if attention.get("no_op"):
            mixer = NO_MIXER
        elif attention.get("replace_with_linear"):
            mixer = NO_MIXER | Mixer(attention_parameters=self.hidden**2)
        else:
            kv_heads = self.num_heads // attention["n_heads_in_group"]
            mixer = self.grouped(self.num_heads, kv_heads, self.head_dim, self.head_dim)
        dense = 0
        if forward.get("replace_with_linear"):
            dense = self.hidden**2
        elif not forward.get("no_op"):
            wanted = int(2 * forward["ffn_mult"] * self.hidden / 3)
            dense = 3 * self.hidden * (-(-wanted // SEARCHED_STEP) * SEARCHED_STEP)
        norms = self.hidden * (bool(mixer["attention_parameters"]) + bool(dense))
        return LayerShape(**mixer | Mixer(small_parameters=mixer["small_parameters"] + norms), dense_parameters=dense)

    def _dense_block(self, index: int) -> int:
        is_double = bool(self.value("use_double_wide_mlp", False)) and self._shares_kv(index)
        return (1 + is_double) * self._family.matrices * self.hidden * self.dense_width

    def _beside_experts(self) -> int:
        """Matrices of the feed-forward part that are no expert's: shared experts, their gate, and what brings a token
        to the experts' width and back."""
        number = self.whole("n_shared_experts") if self.value("n_shared_experts", 0) else 0
        shared = self.value("shared_expert_intermediate_size", 0) or number * self.expert_width
        width = shared + (self.dense_width if self._family.has_dense_beside else 0)
        latent = 2 * self.hidden * (self.value("moe_latent_size", 0) or 0)
        return self._family.matrices * self.hidden * width + self._family.has_shared_gate * self.hidden + latent
