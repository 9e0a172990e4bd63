"""A small decoder on the emulated NPU against the reference decoder: one prompt, then two steps on its caches.

The small decoder is the model's own, norms, rotation and sharing of heads included, with SMALL dimensions; it has the
bucket's true length, so that masks and blocks of attention are those of the bucket. The prompt fills three quarters of
it; one step stands behind it, the other behind its first SHORT tokens. The error is the root of the mean square
difference over that of the reference's values, the worst of: logits of each run, and the last layer's keys and values
of each of the prompt's positions.

LIMIT: fp16 rounds by 2^-11 at most each time. A value passes some twenty roundings in two layers, whose errors add as
their squares do: 20^0.5 x 2^-11 = 0.0022, and sums inside the NPU are of fp16 too; 0.003 was seen. One position too
many among n moves a value by about 1/n: hence the short step and the prompt's first positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.extensions.compilers.hub.decoder import export_graph
from pytest_npubench.extensions.compilers.hub.graph import GraphSpec
from pytest_npubench.extensions.compilers.hub.onnx_file import model_file
from pytest_npubench.extensions.compilers.hub.weights import Array, WeightSource, seeded_weights, weight_dims

LIMIT = 2**-7
NUM_LAYERS = 2
SHORT = 5
Run = Callable[[Path, Mapping[str, Array]], Mapping[str, Array]]
"""Outputs by name of the graph in a file."""


def small(shape: DecoderShape) -> DecoderShape:
    """Returns the shape with few and narrow layers, four query heads on two key-value heads, or on four where it has as
    many of both."""
    return replace(
        shape,
        name=f"{shape.name}-small",
        hidden=128,
        intermediate=256,
        num_layers=NUM_LAYERS,
        num_heads=4,
        num_kv_heads=4 if shape.num_heads == shape.num_kv_heads else 2,
        head_dim=32,
        vocab_size=256,
    )


def answer_error(shape: DecoderShape, bucket: int, dtype: str, folder: Path, run: Run) -> float:
    """Of the small decoder by `run`, relative to the reference's. Infinite where something is no number."""
    tiny = small(shape)
    weights = _weights(tiny, dtype)
    generator = np.random.default_rng(bucket)
    prompt = generator.integers(0, tiny.vocab_size, bucket, dtype=np.int32)
    length, token = max(1, bucket * 3 // 4), np.array([5], np.int32)
    behind = (length, min(SHORT, length))
    reference = _Reference(tiny, weights, prompt, length)
    paths = {}
    for phase in Phase:
        spec = GraphSpec(shape=tiny, phase=phase, bucket=bucket, dtype=dtype)
        paths[phase] = model_file(export_graph(spec, folder / phase.value, weights))
    prefilled = run(paths[Phase.PREFILL], {"tokens": prompt[None], "length": np.array([length], np.int32)})
    errors = [_error(prefilled["logits"], reference.logits)]
    for name, expected in reference.last_layer.items():
        cache = prefilled[f"{name}_{NUM_LAYERS - 1}"]
        errors += [_error(cache[:, :, at], expected[:, :, at]) for at in range(length)]
    step = {
        f"past_{name}_{index}": prefilled[f"{name}_{index}"][:, :, :-1]
        for index in range(tiny.num_layers)
        for name in ("keys", "values")
    }
    for number in behind:
        state = {"tokens": token, "lengths": np.array([number], np.int32)}
        errors.append(_error(run(paths[Phase.DECODE], {**step, **state})["logits"], reference.step(token, number)))
    return max(errors)


def _error(answered: Array, expected: Array) -> float:
    difference = answered.astype(np.float64) - expected
    error = float(np.sqrt(np.mean(difference**2) / np.mean(expected.astype(np.float64) ** 2)))
    return error if np.isfinite(error) else float("inf")


def _weights(shape: DecoderShape, dtype: str) -> WeightSource:
    """Seeded ones, with norms that are not 1: those would hide a norm that is left out."""
    plain = seeded_weights(shape, seed=1, dtype=dtype)

    def weight(name: str) -> Array:
        value = plain(name)
        if value.ndim > 1:
            return value
        return np.random.default_rng(crc32(name.encode())).uniform(0.5, 1.5, value.size).astype(value.dtype)

    return weight


class _Reference:
    """The reference decoder behind a prompt, in float32 on the CPU: logits [1, vocab] of its last true token, keys and
    values [1, K, b, D] of the last layer, and the logits of a step behind any number of its tokens."""

    def __init__(self, shape: DecoderShape, weights: WeightSource, prompt: Array, length: int) -> None:
        import jax
        import jax.numpy as jnp

        from pytest_npubench.engines.jax_dense import forward

        self._tree: dict[str, Any] = {"layers": [{} for _ in range(shape.num_layers)]}
        for name in weight_dims(shape):
            *path, last = name.split(".")
            owner = self._tree["layers"][int(path[1])] if path else self._tree
            owner[last] = jnp.asarray(weights(name).astype(np.float32))
        zeros = jnp.zeros((1, shape.num_kv_heads, prompt.size, shape.head_dim))
        empty = forward.Caches((zeros,) * shape.num_layers, (zeros,) * shape.num_layers)

        def prefill(tree: Any, prompt: Any, length: Any) -> Any:
            hidden, caches = forward.prefill_hidden(shape, tree, empty, prompt, length, jnp.int32(0))
            return forward.logits(shape, tree, hidden), caches

        def decode(tree: Any, caches: Any, token: Any, length: Any) -> Any:
            hidden, _ = forward.decode_hidden(shape, tree, forward.DecoderState(caches, token, length))
            return forward.logits(shape, tree, hidden)

        self._decode = jax.jit(decode)
        logits, self._caches = jax.jit(prefill)(self._tree, jnp.asarray(prompt), jnp.int32(length))
        self.logits: Array = np.asarray(logits)
        both = {"keys": self._caches.keys[-1], "values": self._caches.values[-1]}
        self.last_layer: Mapping[str, Array] = {name: np.asarray(value) for name, value in both.items()}

    def step(self, token: Array, length: int) -> Array:
        """Logits [1, vocab] of the token behind the first `length` of the prompt."""
        return np.asarray(self._decode(self._tree, self._caches, token, np.array([length], np.int32)))
