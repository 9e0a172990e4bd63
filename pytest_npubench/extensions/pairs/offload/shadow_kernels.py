"""Graphs of the static unit for the shadow experiment: one product in float32, in INT8, or in both on this one unit.

Imported by the static unit's process alone. Weights are constants of the graph, as an NPU's compiler has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_npubench.engines.quantization import LEVELS, Floats, max_min_scale, quantize
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena

Product = Callable[[jax.Array], jax.Array]


def build(spec: Mapping[str, Any], arena: SharedArena) -> Callable[[], None]:
    """spec: kind (fp32, int8, mixed), x, weight, output: names in the arena; scale: of x, for int8 and mixed; channels:
    the hot ones, for mixed. x is [tokens, channels], weight [channels, rows]."""
    weight, x, output = arena.view(spec["weight"]), arena.view(spec["x"]), arena.view(spec["output"])
    compiled = jax.jit(_product(spec, weight)).lower(jax.ShapeDtypeStruct(x.shape, np.float32)).compile()

    def run() -> None:
        np.copyto(output, np.asarray(compiled(jnp.asarray(x))))

    return run


def _product(spec: Mapping[str, Any], weight: Floats) -> Product:
    if spec["kind"] == "fp32":
        return lambda x: jnp.dot(x, weight, precision=jax.lax.Precision.HIGHEST)
    bulk = int8_dot(weight, spec["scale"])
    if spec["kind"] == "int8":
        return bulk
    hot = np.asarray(spec["channels"], dtype=np.int32)
    hot_weight, limit = weight[hot], LEVELS * spec["scale"]

    def mixed(x: jax.Array) -> jax.Array:
        some = x[:, hot]
        return bulk(x) + jnp.dot(some - jnp.clip(some, -limit, limit), hot_weight, precision=jax.lax.Precision.HIGHEST)

    return mixed


def int8_dot(weight: Floats, scale: float) -> Product:
    """x [tokens, channels] -> [tokens, rows]: INT8 operands, sums in int32, one scale for each tensor."""
    weight_scale = max_min_scale(weight)
    weight_int8 = quantize(weight, weight_scale)

    def product(x: jax.Array) -> jax.Array:
        levels = jnp.clip(jnp.rint(x / np.float32(scale)), -LEVELS, LEVELS).astype(jnp.int8)
        sums = jax.lax.dot_general(levels, weight_int8, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
        return sums.astype(jnp.float32) * np.float32(scale * weight_scale)

    return product
