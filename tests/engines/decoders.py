"""Small decoders that between them hold every part of the family, and engines of them whose tokens say something.

Random weights of tied embeddings answer with the prompt's last token for ever, and norms of one hide a norm that is
left out. So `mixed()` makes the embedding small beside what the layers add and gives each norm weights of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cache
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
import pytest
from small_decoders import small_decoder

from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine
from pytest_npubench.engines.shapes import DecoderShape, RopeScaling

from . import oracle

BUCKETS = (8, 16, 32, 300)  # 300: above the attention's block of 256 and no multiple of it
BATCH_SIZE = 3
MARGIN = 1e-3  # fp32 logits of these decoders err by some 1e-5: a wider gap decides the token

TIED = small_decoder("tied")
# of its eight wavelengths Llama 3's rule keeps one, blends two and stretches five at an original context of 64
STRETCHED = dataclasses.replace(
    TIED,
    name="stretched",
    num_kv_heads=4,
    tied_embeddings=False,
    rope_scaling=RopeScaling(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=64),
)
# head_dim * num_heads differs from hidden, as in Qwen3's smaller models
NORMED = dataclasses.replace(
    TIED,
    name="normed",
    num_kv_heads=1,
    head_dim=24,
    rope_theta=500.0,
    rms_eps=1e-3,
    tied_embeddings=False,
    qk_norm=True,
)
SHAPES = {shape.name: shape for shape in (TIED, STRETCHED, NORMED)}


def soak_but_first(values: Iterable[Any]) -> list[Any]:
    """Parameters: the first one in every run of the tests, the others in the soak alone."""
    return [pytest.param(value, marks=[pytest.mark.soak] if place else []) for place, value in enumerate(values)]


# every split dimension is a multiple of four; query heads share key-value heads inside each of four devices
SPLIT = dataclasses.replace(
    TIED,
    name="split",
    num_layers=1,
    num_heads=8,
    num_kv_heads=4,
    head_dim=8,
    tied_embeddings=False,
    qk_norm=True,
)


def mixed_engine(shape: DecoderShape, runtime: Any) -> StaticBucketEngine:
    """An engine of the shape with mixed() weights."""
    engine = StaticBucketEngine(shape, runtime, buckets=BUCKETS, batch_size=BATCH_SIZE)
    engine.weights = mixed(engine.weights)
    return engine


def mixed(weights: Any) -> Any:
    """The same tree on the same devices: embeddings shrunk to a twentieth, every norm's weights spread about one."""
    generator = np.random.default_rng(7)

    def change(path: Any, array: jax.Array) -> jax.Array:
        name = jax.tree_util.keystr(path)
        if "norm" in name:
            values = 1 + 0.3 * generator.standard_normal(array.shape)
        else:
            values = np.asarray(array) * (0.05 if "embedding" in name else 1.0)
        return jax.device_put(values.astype(array.dtype), array.sharding)

    return jax.tree_util.tree_map_with_path(change, weights)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A prompt, its request's output length and the oracle's answer, whose margin is above MARGIN."""

    prompt: npt.NDArray[np.int32]
    count: int
    answer: oracle.Answer


class Oracle:
    """The oracle's answers of one engine's weights, each calculated once."""

    def __init__(self, engine: StaticBucketEngine) -> None:
        self._shape = engine.shape
        self._weights = oracle.exact(engine.weights)
        self.ask = cache(self._ask)

    def _ask(self, length: int, count: int, seed: int = 0) -> Asked:
        """The first random prompt of this length whose tokens are all beyond doubt; a few in a hundred are not."""
        for attempt in range(20):
            generator = np.random.default_rng((length, seed, attempt))
            prompt = generator.integers(0, self._shape.vocab_size, length, dtype=np.int32)
            answer = oracle.generate(self._shape, self._weights, prompt, count)
            if answer.margin > MARGIN:
                return Asked(prompt=prompt, count=count, answer=answer)
        raise AssertionError(f"no prompt of {length} tokens whose next {count} are clear")
