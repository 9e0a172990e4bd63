"""The reference decoder's operators in jax, each a binary of its own on the first layer's weights.

# N = compiled batch size, b = bucket, B x S = rows x positions: 1 x b of a prompt, N x 1 of a decode step
Inputs are random and stay on the devices; keys and values go into caches of the bucket, donated and given back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_npubench.core.measurement import Phase
from pytest_npubench.core.parts import Part
from pytest_npubench.engines.jax_dense import forward
from pytest_npubench.engines.jax_dense.binaries import DecoderBinaries
from pytest_npubench.engines.jax_dense.layers import attend_step, project_qkv, rms_norm
from pytest_npubench.engines.jax_dense.weights import Weights
from pytest_npubench.engines.protocol import Compiler


class DecoderOperators:
    """Makes the call of an operator: one run of it, waited for."""

    def __init__(self, binaries: DecoderBinaries, compiler: Compiler, weights: Weights) -> None:
        self._binaries, self._compiler, self._weights = binaries, compiler, weights
        self._shape = binaries.shape

    def call(self, part: Part) -> Callable[[], None]:
        """Compiled, with its inputs on the devices."""
        rows, length = (1, part.bucket) if part.phase is Phase.PREFILL else (self._binaries.batch_size, 1)
        if part.operator == "attend":
            return self._attend(part, rows, length)
        function, *arguments = self._operator(str(part.operator), rows, length)
        run = self._compiler.compile(part.name, function, *arguments)
        return lambda: jax.block_until_ready(run(*arguments))

    def _operator(self, operator: str, rows: int, length: int) -> tuple[Any, ...]:
        """A function and its arguments."""
        shape, layer = self._shape, self._weights["layers"][0]
        hidden = self._random((rows, length, shape.hidden))
        positions = self._whole(np.broadcast_to(np.arange(length, dtype=np.int32), (rows, length)))
        if operator == "embed":
            return lambda table, tokens: table[tokens], self._weights["embedding"], positions
        if operator == "project":
            return partial(_project, shape), layer, hidden, positions
        if operator == "output":
            return forward.add_attended, layer, hidden, self._heads(rows, length, shape.num_heads)
        if operator == "feed_forward":
            return lambda layer, x: forward.add_feed_forward(layer, x, shape), layer, hidden
        return partial(forward.greedy, shape), self._weights, self._random((rows, shape.hidden))

    def _attend(self, part: Part, rows: int, length: int) -> Callable[[], None]:
        shape, form = self._shape, self._binaries.form
        cache = self._binaries.caches(part.bucket).keys[0]
        caches = tuple(jax.device_put(np.zeros(cache.shape, cache.dtype), cache.sharding) for _ in range(2))
        q = self._heads(rows, length, shape.num_heads)
        k, v = (self._heads(rows, length, shape.num_kv_heads) for _ in range(2))
        lengths = self._whole(np.full(rows, part.bucket - 1, np.int32))

        def prompt(caches: Any, q: Any, k: Any, v: Any, lengths: Any) -> Any:
            kv = tuple(jnp.swapaxes(new, 1, 2) for new in (k, v))
            written = tuple(jax.lax.dynamic_update_slice(*pair, (0, 0, 0, 0)) for pair in zip(caches, kv, strict=True))
            return form.attend_prompt(q, *kv), written

        def step(caches: Any, q: Any, k: Any, v: Any, lengths: Any) -> Any:
            new = (k[:, 0], v[:, 0])
            written = tuple(form.write_step(*pair, lengths) for pair in zip(caches, new, strict=True))
            return attend_step(q, written[0], written[1], lengths + 1), written

        function = prompt if part.phase is Phase.PREFILL else step
        out = (q.sharding, (cache.sharding,) * 2)
        run = self._compiler.compile(part.name, function, caches, q, k, v, lengths, donate=(0,), out=out)

        def call() -> None:
            nonlocal caches
            attended, caches = run(caches, q, k, v, lengths)
            jax.block_until_ready(attended)

        return call

    def _random(self, dims: tuple[int, ...]) -> Any:
        return self._whole(_values(dims, self._binaries.dtype))

    def _whole(self, values: Any) -> Any:
        """Puts values whole on every device."""
        return jax.device_put(values, self._binaries.sharding())

    def _heads(self, rows: int, length: int, num_heads: int) -> Any:
        """[B, S, heads, D], spread over the devices by heads."""
        dims = (rows, length, num_heads, self._shape.head_dim)
        return jax.device_put(_values(dims, self._binaries.dtype), self._binaries.sharding(heads_axis=2))


def _project(shape: Any, layer: Weights, x: jax.Array, positions: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    return project_qkv(layer, rms_norm(x, layer["attention_norm"], shape.rms_eps), positions, shape)


def _values(dims: tuple[int, ...], dtype: Any) -> Any:
    return np.random.default_rng(0).standard_normal(dims, np.float32).astype(dtype)
