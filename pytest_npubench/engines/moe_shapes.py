"""Named shapes of decoders with a mixture of experts, and of a dense one as control. A shape is data with its source.

Worked numbers: one expert of qwen3-30b-a3b has 3 x 2048 x 768 weights, 9.437 MB in bf16; its 48 layers of 128 hold
58.0 GB of experts; a token leaves 2 x 48 x 4 x 128 x 2 = 98,304 bytes of keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_npubench.engines.shape_names import add_shape, find_shape

Architecture = Literal["qwen3", "gpt-oss"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeShape:
    """A decoder whose feed-forward layers are num_experts experts of which each token takes experts_per_token.

    num_experts = 1 is a dense decoder: its one feed-forward block is always active and no expert of anybody's.
    architecture "qwen3": RMSNorm on each head's q and k, SwiGLU (Qwen3, arXiv 2505.09388). "gpt-oss": attention sinks,
    biases, a clamped SwiGLU, and a sliding window on every other layer, the first one included (gpt-oss model card).
    """

    name: str
    source: str
    architecture: Architecture
    vocab_size: int
    hidden: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    num_experts: int
    experts_per_token: int
    expert_intermediate: int
    rope_theta: float
    rms_eps: float
    tied_embeddings: bool = False
    sliding_window: int | None = None

    @property
    def is_dense(self) -> bool:
        return self.num_experts == 1

    @property
    def expert_parameters(self) -> int:
        """Gate, up and down projection of one expert; biases are left out, as the papers count."""
        return 3 * self.hidden * self.expert_intermediate

    def expert_bytes(self, dtype_bytes: float) -> int:
        """Bytes of one expert's weights: what activating it loads (0 in a dense decoder: nothing is chosen)."""
        return 0 if self.is_dense else int(self.expert_parameters * dtype_bytes)

    @property
    def shared_parameters_per_layer(self) -> int:
        """Weights of a layer that every token uses: attention and router, and the dense feed-forward block."""
        attention = self.hidden * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        return attention + (self.expert_parameters if self.is_dense else self.hidden * self.num_experts)

    @property
    def num_parameters(self) -> int:
        """Weights including embeddings, without norms and biases (under 0.1 %)."""
        experts = 0 if self.is_dense else self.num_experts * self.expert_parameters
        tables = 1 if self.tied_embeddings else 2
        return self.num_layers * (self.shared_parameters_per_layer + experts) + tables * self.vocab_size * self.hidden

    @property
    def num_active_parameters(self) -> int:
        """Weights that multiply one token, without the embedding table."""
        experts = 0 if self.is_dense else self.experts_per_token * self.expert_parameters
        return self.num_layers * (self.shared_parameters_per_layer + experts) + self.vocab_size * self.hidden

    def kv_bytes_per_token(self, dtype_bytes: float) -> int:
        """Bytes of keys and values one token leaves in the cache, over all layers, windows not subtracted."""
        return int(2 * self.num_layers * self.num_kv_heads * self.head_dim * dtype_bytes)


_SHAPES = (
    MoeShape(
        name="qwen3-30b-a3b",
        source="config.json of Qwen/Qwen3-30B-A3B",
        architecture="qwen3",
        vocab_size=151_936,
        hidden=2048,
        num_layers=48,
        num_heads=32,
        num_kv_heads=4,
        head_dim=128,
        num_experts=128,
        experts_per_token=8,
        expert_intermediate=768,
        rope_theta=1_000_000.0,
        rms_eps=1e-6,
    ),
    MoeShape(
        name="gpt-oss-20b",
        source="config.json of openai/gpt-oss-20b",
        architecture="gpt-oss",
        vocab_size=201_088,
        hidden=2880,
        num_layers=24,
        num_heads=64,
        num_kv_heads=8,
        head_dim=64,
        num_experts=32,
        experts_per_token=4,
        expert_intermediate=2880,
        rope_theta=150_000.0,
        rms_eps=1e-5,
        sliding_window=128,
    ),
    MoeShape(
        name="qwen3-8b",
        source="config.json of Qwen/Qwen3-8B: the dense control of Layered Prefill, section 5.13",
        architecture="qwen3",
        vocab_size=151_936,
        hidden=4096,
        num_layers=36,
        num_heads=32,
        num_kv_heads=8,
        head_dim=128,
        num_experts=1,
        experts_per_token=1,
        expert_intermediate=12_288,
        rope_theta=1_000_000.0,
        rms_eps=1e-6,
    ),
    MoeShape(
        name="small-moe",
        source="ours: 403 MB of experts in fp32, a dozen times the last-level cache of a server CPU's core complex",
        architecture="qwen3",
        vocab_size=2048,
        hidden=512,
        num_layers=8,
        num_heads=8,
        num_kv_heads=2,
        head_dim=64,
        num_experts=32,
        experts_per_token=4,
        expert_intermediate=256,
        rope_theta=1_000_000.0,
        rms_eps=1e-6,
        tied_embeddings=True,
    ),
    MoeShape(
        name="small-dense",
        source="ours: small-moe with one feed-forward block of the size a token's experts have together",
        architecture="qwen3",
        vocab_size=2048,
        hidden=512,
        num_layers=8,
        num_heads=8,
        num_kv_heads=2,
        head_dim=64,
        num_experts=1,
        experts_per_token=1,
        expert_intermediate=1024,
        rope_theta=1_000_000.0,
        rms_eps=1e-6,
        tied_embeddings=True,
    ),
    MoeShape(
        name="small-gpt-oss",
        source="ours: gpt-oss's layer at a size for tests and CPUs",
        architecture="gpt-oss",
        vocab_size=2048,
        hidden=256,
        num_layers=4,
        num_heads=8,
        num_kv_heads=2,
        head_dim=32,
        num_experts=16,
        experts_per_token=4,
        expert_intermediate=256,
        rope_theta=150_000.0,
        rms_eps=1e-5,
        sliding_window=64,
    ),
)

MOE_SHAPES: dict[str, MoeShape] = {shape.name: shape for shape in _SHAPES}


def register(shape: MoeShape) -> None:
    """Add a shape that hardware files may name. Raises RegistryError on a name that is taken."""
    add_shape(MOE_SHAPES, shape)


def moe_shape(name: str) -> MoeShape:
    """The shape of that name. Raises RegistryError with the known names."""
    return find_shape(MOE_SHAPES, name)
