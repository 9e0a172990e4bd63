"""Named decoder shapes. A shape is data: the published ones carry the source of their figures.

Worked number: llama-3.2-1b has 1.24e9 parameters, 2.47 GB of weights in bf16.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.engines.shape_names import add_shape, find_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Llama 3's stretch of low rotary frequencies (Llama 3 config.json, `rope_type: llama3`)."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """A Llama-family dense decoder: RMSNorm, RoPE, grouped-query attention, SwiGLU.

    num_heads query heads share num_kv_heads key-value heads; qk_norm is Qwen3's RMSNorm on each head's q and k.
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

    @property
    def num_parameters(self) -> int:
        """Weights including embeddings and norms."""
        attention = self.hidden * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        norms = 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)
        layer = attention + 3 * self.hidden * self.intermediate + norms
        tables = 1 if self.tied_embeddings else 2
        return self.num_layers * layer + tables * self.vocab_size * self.hidden + self.hidden

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Bytes of keys and values one token leaves in the cache, over all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype_bytes


_LLAMA3_ROPE = RopeScaling(factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=8192)

_SHAPES = (
    DecoderShape(
        name="tiny-llama",
        source="ours: steps of under a millisecond on two CPU cores, so that a campaign has many rounds",
        vocab_size=2048,
        hidden=128,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=32,
        intermediate=352,
        rope_theta=10_000.0,
        rms_eps=1e-5,
        tied_embeddings=True,
    ),
    DecoderShape(
        name="tiny-qwen",
        source="ours: tiny-llama's size with Qwen3's q/k norms, untied embeddings and a deeper stack",
        vocab_size=2048,
        hidden=128,
        num_layers=3,
        num_heads=4,
        num_kv_heads=1,
        head_dim=32,
        intermediate=256,
        rope_theta=1_000_000.0,
        rms_eps=1e-6,
        qk_norm=True,
    ),
    DecoderShape(
        name="llama-3.2-1b",
        source="config.json of meta-llama/Llama-3.2-1B",
        vocab_size=128_256,
        hidden=2048,
        num_layers=16,
        num_heads=32,
        num_kv_heads=8,
        head_dim=64,
        intermediate=8192,
        rope_theta=500_000.0,
        rms_eps=1e-5,
        tied_embeddings=True,
        rope_scaling=_LLAMA3_ROPE,
    ),
    DecoderShape(
        name="mistral-7b-v0.3",
        source="config.json of mistralai/Mistral-7B-v0.3",
        vocab_size=32_768,
        hidden=4096,
        num_layers=32,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        intermediate=14_336,
        rope_theta=1_000_000.0,
        rms_eps=1e-5,
    ),
    DecoderShape(
        name="qwen3-14b",
        source="config.json of Qwen/Qwen3-14B",
        vocab_size=151_936,
        hidden=5120,
        num_layers=40,
        num_heads=40,
        num_kv_heads=8,
        head_dim=128,
        intermediate=17_408,
        rope_theta=1_000_000.0,
        rms_eps=1e-6,
        qk_norm=True,
    ),
)

SHAPES: dict[str, DecoderShape] = {shape.name: shape for shape in _SHAPES}


def register(shape: DecoderShape) -> None:
    """Add a shape that hardware files may name. Raises RegistryError on a name that is taken."""
    add_shape(SHAPES, shape)


def decoder_shape(name: str) -> DecoderShape:
    """The shape of that name. Raises RegistryError with the known names."""
    return find_shape(SHAPES, name)
