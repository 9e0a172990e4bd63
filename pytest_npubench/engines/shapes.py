"""Decoder shapes, dense ones and those with a mixture of experts, by name. A shape is data with its source.

All that is counted from a model without running it is counted here: parameters, bytes of weights, bytes of keys and
values. engines/hf_config.py reads a shape from a Hugging Face config.json.

Worked numbers: llama-3.2-1b has 1.24e9 parameters, 2.47 GB of weights in bf16. One expert of qwen3-30b-a3b has
3 x 2048 x 768 weights, 9.437 MB in bf16; its 48 layers of 128 hold 58.0 GB of experts; a token leaves
2 x 48 x 4 x 128 x 2 = 98,304 bytes of keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from pytest_npubench.engines.decoder_layers import LayerShape, grouped_attention
from pytest_npubench.engines.weight_bits import WeightBits
from pytest_npubench.errors import RegistryError, did_you_mean

Architecture = Literal["llama", "gpt-oss"]

# config.json of openai/gpt-oss-20b: rope_scaling, swiglu_limit, and the gain of the SwiGLU's sigmoid
YARN_FACTOR = 32.0
YARN_BETA_FAST = 32.0
YARN_BETA_SLOW = 1.0
YARN_ORIGINAL_CONTEXT = 4096
SWIGLU_LIMIT = 7.0
SWIGLU_ALPHA = 1.702


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Llama 3's stretch of low rotary frequencies (Llama 3 config.json, `rope_type: llama3`)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShape:
    """Layers have num_experts feed-forward blocks, of which each token takes experts_per_token. parameters: of one,
    where these are no three matrices of the hidden width."""

    num_experts: int
    experts_per_token: int
    parameters: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """A decoder of the Llama family: RMSNorm, RoPE, grouped-query attention, SwiGLU; dense where `experts` is None.

    num_heads query heads share num_kv_heads key-value heads. intermediate is the width of a feed-forward block: of the
    one that a dense layer has, or of each expert. qk_norm is Qwen3's RMSNorm on each head's q and k (arXiv 2505.09388),
    qkv_bias Qwen2's bias of queries, keys and values (arXiv 2407.10671). architecture "gpt-oss": attention sinks,
    biases everywhere, YaRN, a clamped SwiGLU, and sliding_window on every other layer, the first one included
    (gpt-oss model card). layers: of a decoder whose layers differ, or whose attention is another; no engine here runs
    it. num_kv_heads is then 1 where the cache is of all heads together. other_parameters: beside layers, tables and
    one norm; draft_parameters: of layers that predict further tokens, which are in memory alone. weight_bits: of a
    checkpoint whose weights are quantised. doubts: what its file says that is not counted, in words.
    """

    name: str
    source: str
    vocab_size: int
    hidden: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate: int
    rope_theta: float
    rms_eps: float
    tied_embeddings: bool = False
    qk_norm: bool = False
    rope_scaling: RopeScaling | None = None
    qkv_bias: bool = False
    architecture: Architecture = "llama"
    sliding_window: int | None = None
    experts: ExpertShape | None = None
    layers: tuple[LayerShape, ...] = ()
    other_parameters: int = 0
    draft_parameters: int = 0
    weight_bits: WeightBits | None = None
    doubts: tuple[str, ...] = ()

    @property
    def is_dense(self) -> bool:
        return self.experts is None

    @property
    def num_experts(self) -> int:
        """Feed-forward blocks of a layer; 1 in a dense decoder, whose one block is no expert: every token takes it."""
        return 1 if self.experts is None else self.experts.num_experts

    @property
    def experts_per_token(self) -> int:
        return 1 if self.experts is None else self.experts.experts_per_token

    @property
    def expert_parameters(self) -> int:
        """Gate, up and down projection of one feed-forward block; biases are left out, as the papers count."""
        return (self.experts and self.experts.parameters) or 3 * self.hidden * self.intermediate

    def expert_bytes(self, dtype_bytes: float) -> int:
        """Bytes of one expert's weights: what activating it loads (0 in a dense decoder: nothing is chosen)."""
        return 0 if self.is_dense else int(self.expert_parameters * self._matrix_bytes(dtype_bytes))

    def _matrix_bytes(self, dtype_bytes: float, *, is_attention: bool = False) -> float:
        """Of one weight of a layer's matrices; dtype_bytes where they are not quantised."""
        bits = self.weight_bits
        if bits is None or (is_attention and not bits.is_attention_quantised):
            return dtype_bytes
        return ((is_attention and bits.attention_bits) or bits.bits) / 8

    def shared_bytes(self, layer: LayerShape, dtype_bytes: float) -> float:
        """Of the matrices of a layer that every token uses. Routers are never quantised."""
        attention = layer.attention_parameters * self._matrix_bytes(dtype_bytes, is_attention=True)
        dense = layer.dense_parameters * self._matrix_bytes(dtype_bytes)
        return attention + dense + layer.router_parameters * dtype_bytes

    def head_bytes(self, dtype_bytes: float) -> float:
        """Of the output's projection."""
        is_quantised = self.weight_bits is not None and self.weight_bits.is_head_quantised
        return self.vocab_size * self.hidden * (self._matrix_bytes(dtype_bytes) if is_quantised else dtype_bytes)

    def weight_bytes(self, dtype_bytes: float) -> float:
        """Of all weights, of which those that are not quantised take dtype_bytes each."""
        layers = sum(self.shared_bytes(layer, dtype_bytes) for layer in self.all_layers)
        small = sum(layer.small_parameters for layer in self.all_layers) + self.hidden + self.other_parameters
        experts = self.num_experts * self.expert_bytes(dtype_bytes) * self._num_expert_layers
        tables = (1 if self.tied_embeddings else 2) * self.head_bytes(dtype_bytes)
        return layers + experts + tables + small * dtype_bytes + self.draft_parameters * self._matrix_bytes(dtype_bytes)

    @property
    def all_layers(self) -> tuple[LayerShape, ...]:
        """From the first to the last; of a decoder whose layers are alike all the same, but for gpt-oss's windows."""
        if self.layers:
            return self.layers
        mixer = grouped_attention(
            hidden=self.hidden, num_heads=self.num_heads, num_kv_heads=self.num_kv_heads, head_dim=self.head_dim
        )
        mixer["small_parameters"] = self.norm_parameters_per_layer + self.bias_parameters_per_layer
        alike = partial(
            LayerShape,
            **mixer,
            dense_parameters=self.expert_parameters if self.is_dense else 0,
            router_parameters=0 if self.is_dense else self.hidden * self.num_experts,
            has_experts=not self.is_dense,
        )
        windows = (self.sliding_window, None) if self.sliding_window else (None,)
        return (tuple(alike(window=window) for window in windows) * self.num_layers)[: self.num_layers]

    @property
    def mean_experts(self) -> float:
        """Experts of a layer, on average over all layers; 1 in a dense decoder."""
        return 1.0 if self.is_dense else self.num_experts * self._num_expert_layers / self.num_layers

    @property
    def _num_expert_layers(self) -> int:
        first, stop = self.expert_layers(0, self.num_layers)
        return stop - first

    def expert_layers(self, first: int, stop: int) -> tuple[int, int]:
        """Layers [first, stop) counted among those with experts; as they are where all layers are alike."""
        without = [not layer.has_experts for layer in self.layers]
        return first - sum(without[:first]), stop - sum(without[:stop])

    @property
    def attention_parameters(self) -> int:
        """Projections of queries, keys, values and the output of one layer."""
        return self.hidden * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)

    @property
    def shared_parameters_per_layer(self) -> int:
        """Matrices of a layer that every token uses: attention and router, or the dense feed-forward block."""
        return self.attention_parameters + (self.expert_parameters if self.is_dense else self.hidden * self.num_experts)

    @property
    def norm_parameters_per_layer(self) -> int:
        return 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)

    @property
    def bias_parameters_per_layer(self) -> int:
        """Biases, and the sinks of gpt-oss, one a query head."""
        is_gpt_oss = self.architecture == "gpt-oss"
        qkv = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim if self.qkv_bias or is_gpt_oss else 0
        if not is_gpt_oss:
            return qkv
        router = 0 if self.is_dense else self.num_experts
        return qkv + self.hidden + self.num_heads + router + self.num_experts * (2 * self.intermediate + self.hidden)

    @property
    def parameters_per_layer(self) -> int:
        experts = 0 if self.is_dense else self.num_experts * self.expert_parameters
        small = self.norm_parameters_per_layer + self.bias_parameters_per_layer
        return self.shared_parameters_per_layer + experts + small

    @property
    def num_parameters(self) -> int:
        """All weights but those of drafts, embeddings, norms and biases included."""
        tables = self.vocab_size * self.hidden * (1 if self.tied_embeddings else 2)
        layers = sum(layer.shared_parameters + layer.small_parameters for layer in self.all_layers)
        experts = 0 if self.is_dense else self._num_expert_layers * self.num_experts * self.expert_parameters
        return layers + experts + tables + self.hidden + self.other_parameters

    @property
    def num_active_parameters(self) -> int:
        """Weights that multiply one token, without the embedding table, norms and biases."""
        shared = sum(layer.shared_parameters for layer in self.all_layers)
        return shared + self._active_expert_parameters + self.vocab_size * self.hidden

    @property
    def _active_expert_parameters(self) -> int:
        return 0 if self.is_dense else self._num_expert_layers * self.experts_per_token * self.expert_parameters

    @property
    def expert_share(self) -> float:
        """The experts' part of a token's operations."""
        return self._active_expert_parameters / self.num_active_parameters

    def kv_bytes_per_token(self, dtype_bytes: float) -> int:
        """Bytes of keys and values one token leaves in the cache, over all layers, windows not subtracted."""
        return int(sum(layer.cached_values for layer in self.all_layers) * dtype_bytes)

    def state_bytes(self, dtype_bytes: float) -> float:
        """Bytes that a request keeps whatever its length, over all layers."""
        return sum(layer.state_bytes(dtype_bytes) for layer in self.layers)


_LLAMA3_ROPE = RopeScaling(factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192)

_SIZES = ("vocab_size", "hidden", "num_layers", "num_heads", "num_kv_heads", "head_dim", "intermediate")


def _shape(name: str, source: str, sizes: tuple[int, ...], **others: Any) -> DecoderShape:
    """sizes: in the order of _SIZES."""
    named: dict[str, Any] = dict(zip(_SIZES, sizes, strict=True))
    return DecoderShape(name=name, source=source, **named, **others)


_qwen3 = partial(_shape, rope_theta=1_000_000.0, rms_eps=1e-6, qk_norm=True)
_gpt_oss = partial(_shape, rope_theta=150_000.0, rms_eps=1e-5, architecture="gpt-oss")

_SHAPES = (
    _shape(
        "tiny-llama",
        "ours: steps of under a millisecond on two CPU cores, so that a campaign has many rounds",
        (2048, 128, 2, 4, 2, 32, 352),
        rope_theta=10_000.0,
        rms_eps=1e-5,
        tied_embeddings=True,
    ),
    _qwen3(
        "tiny-qwen",
        "ours: tiny-llama's size with Qwen3's q/k norms, untied embeddings and a deeper stack",
        (2048, 128, 3, 4, 1, 32, 256),
    ),
    _shape(
        "llama-3.2-1b",
        "config.json of meta-llama/Llama-3.2-1B",
        (128_256, 2048, 16, 32, 8, 64, 8192),
        rope_theta=500_000.0,
        rms_eps=1e-5,
        tied_embeddings=True,
        rope_scaling=_LLAMA3_ROPE,
    ),
    _shape(
        "mistral-7b-v0.3",
        "config.json of mistralai/Mistral-7B-v0.3",
        (32_768, 4096, 32, 32, 8, 128, 14_336),
        rope_theta=1_000_000.0,
        rms_eps=1e-5,
    ),
    _qwen3("qwen3-14b", "config.json of Qwen/Qwen3-14B", (151_936, 5120, 40, 40, 8, 128, 17_408)),
    _qwen3(
        "qwen3-30b-a3b",
        "config.json of Qwen/Qwen3-30B-A3B",
        (151_936, 2048, 48, 32, 4, 128, 768),
        experts=ExpertShape(num_experts=128, experts_per_token=8),
    ),
    _gpt_oss(
        "gpt-oss-20b",
        "config.json of openai/gpt-oss-20b",
        (201_088, 2880, 24, 64, 8, 64, 2880),
        sliding_window=128,
        experts=ExpertShape(num_experts=32, experts_per_token=4),
    ),
    _qwen3(
        "qwen3-8b",
        "config.json of Qwen/Qwen3-8B: the dense control of Layered Prefill, section 5.13",
        (151_936, 4096, 36, 32, 8, 128, 12_288),
    ),
    _qwen3(
        "small-moe",
        "ours: 403 MB of experts in fp32, a dozen times the last-level cache of a server CPU's core complex",
        (2048, 512, 8, 8, 2, 64, 256),
        tied_embeddings=True,
        experts=ExpertShape(num_experts=32, experts_per_token=4),
    ),
    _qwen3(
        "small-dense",
        "ours: small-moe with one feed-forward block of the size a token's experts have together",
        (2048, 512, 8, 8, 2, 64, 1024),
        tied_embeddings=True,
    ),
    _gpt_oss(
        "small-gpt-oss",
        "ours: gpt-oss's layer at a size for tests and CPUs",
        (2048, 256, 4, 8, 2, 32, 256),
        sliding_window=64,
        experts=ExpertShape(num_experts=16, experts_per_token=4),
    ),
)

SHAPES: dict[str, DecoderShape] = {shape.name: shape for shape in _SHAPES}


def register(shape: DecoderShape) -> None:
    """Add a shape that hardware files may name. Raises RegistryError on a name that is taken."""
    if shape.name in SHAPES:
        raise RegistryError(f"a decoder shape {shape.name!r} is there already")
    SHAPES[shape.name] = shape


def decoder_shape(name: str) -> DecoderShape:
    """The shape of that name. Raises RegistryError with the known names."""
    return _find(name, list(SHAPES))


def dense_shape(name: str) -> DecoderShape:
    """A shape that the bucket suite runs: without experts and biases. Raises RegistryError with their names."""
    shapes = [known for known, shape in SHAPES.items() if shape.is_dense and not shape.bias_parameters_per_layer]
    if name in SHAPES and name not in shapes:
        raise RegistryError(f"decoder shape {name!r} has experts or biases; want one of {', '.join(shapes)}")
    return _find(name, shapes)


def _find(name: str, names: list[str]) -> DecoderShape:
    if name in names:
        return SHAPES[name]
    raise RegistryError(f"unknown decoder shape {name!r}; known: {', '.join(names)}{did_you_mean(name, names)}")
