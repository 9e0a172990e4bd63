"""Seeded random weights, one tensor at a time: a model of gigabytes is never in memory as a whole.

Names and layouts are the reference decoder's (engines/jax_dense/weights.py): normal with variance 1/fan-in, norms 1.
A tensor's values follow from seed and name alone, so prefill and decode graphs of one seed hold the same weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pytest_npubench.engines.shapes import DecoderShape

Array = npt.NDArray[Any]
WeightSource = Callable[[str], Array]
NUMPY_DTYPES = {"fp32": np.float32, "fp16": np.float16}


def weight_dims(shape: DecoderShape) -> dict[str, tuple[int, ...]]:
    """Dimensions by name; those of layer 3 begin with "layers.3."."""
    queries, keys = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    layer: dict[str, tuple[int, ...]] = {
        "attention_norm": (shape.hidden,),
        "ffn_norm": (shape.hidden,),
        "wq": (shape.hidden, queries),
        "wk": (shape.hidden, keys),
        "wv": (shape.hidden, keys),
        "wo": (queries, shape.hidden),
        "w_gate": (shape.hidden, shape.intermediate),
        "w_up": (shape.hidden, shape.intermediate),
        "w_down": (shape.intermediate, shape.hidden),
    }
    if shape.qk_norm:
        layer |= {"q_norm": (shape.head_dim,), "k_norm": (shape.head_dim,)}
    dims: dict[str, tuple[int, ...]] = {
        "embedding": (shape.vocab_size, shape.hidden),
        "final_norm": (shape.hidden,),
    }
    if not shape.tied_embeddings:
        dims["head"] = (shape.vocab_size, shape.hidden)
    for index in range(shape.num_layers):
        dims |= {f"layers.{index}.{name}": value for name, value in layer.items()}
    return dims


def seeded_weights(shape: DecoderShape, *, seed: int, dtype: str) -> WeightSource:
    """Returns a function from a weight's name to its array."""
    dims = weight_dims(shape)

    def weight(name: str) -> Array:
        size = dims[name]
        if len(size) == 1:
            return np.ones(size, NUMPY_DTYPES[dtype])
        generator = np.random.default_rng((seed, crc32(name.encode())))
        values = generator.standard_normal(size, dtype=np.float32)
        values *= np.float32(1 / math.sqrt(_fan_in(name, size)))
        return values.astype(NUMPY_DTYPES[dtype], copy=False)

    return weight


def _fan_in(name: str, size: tuple[int, ...]) -> int:
    """The embedding is looked up, not multiplied; the head's rows are outputs."""
    if name == "embedding":
        return 1
    return size[1] if name == "head" else size[0]
