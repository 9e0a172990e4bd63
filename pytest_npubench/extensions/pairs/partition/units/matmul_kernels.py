"""Graphs of the static unit for parts of one matrix multiplication.

weight [rows, cols] and activation [tokens, cols] lie in the arena and are read in place, 4-bit weights are dequantised
in the graph; a part multiplies some rows
with its tokens padded to the graph's size, and copies what is not padding into the output [rows, tokens]. The
activation array is longer than its tokens; the zeros behind them are the padding. One executable serves all parts of
one (rows, cols, padded tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.extensions.pairs.partition.matmul import GraphForm
from pytest_npubench.extensions.pairs.partition.number_formats import GROUP
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.operands import part_arrays

_executables: dict[tuple[object, ...], Any] = {}


def build(spec: Mapping[str, Any], arena: SharedArena) -> Callable[[], float]:
    """spec: operands (their names in the arena), part, form; fresh: compile even where there is such a graph."""
    arrays = part_arrays(arena, spec["operands"], spec["part"])
    weights = [arrays.weight] if arrays.scales is None else [arrays.weight, arrays.scales]
    executable = _executable(spec["form"], arrays.activation, *weights, fresh=bool(spec.get("fresh")))
    on_device, read_activation = [_placed(weight) for weight in weights], _reader(arrays.activation)
    output, num_tokens = arrays.output, arrays.output.shape[1]

    def run() -> float:
        result = np.asarray(executable(read_activation(), *on_device))
        began_s = perf_counter()
        np.copyto(output, result[:, :num_tokens])
        return perf_counter() - began_s

    return run


def forget() -> None:
    _executables.clear()


def _executable(form: GraphForm, *arrays: np.ndarray[Any, Any], fresh: bool) -> Any:
    key = form, *((array.shape, array.dtype.str) for array in arrays)
    if fresh or key not in _executables:
        operands = (jax.ShapeDtypeStruct(array.shape, array.dtype) for array in arrays)
        _executables[key] = jax.jit(partial(_product, form)).lower(*operands).compile()
    return _executables[key]


def _product(form: GraphForm, activation: jax.Array, weight: jax.Array, scales: jax.Array | None = None) -> jax.Array:
    """[tokens, cols], [rows, cols] -> [rows, tokens]; summed in float32, uint16 are the bits of bfloat16"""
    is_bf16 = activation.dtype == jnp.uint16
    first = _numbers(weight) if scales is None else _dequantised(weight, _numbers(scales))
    second = _numbers(activation)
    rows, cols = first.shape
    width = min(rows, cols) if form.is_tall else cols
    blocks = (slice(start, start + width) for start in range(0, cols, width))
    product = reduce(add, (_times(first[:, block], second[:, block], form) for block in blocks))
    return jax.lax.bitcast_convert_type(product.astype(jnp.bfloat16), jnp.uint16) if is_bf16 else product


def _times(weight: jax.Array, activation: jax.Array, form: GraphForm) -> jax.Array:
    operands = (activation, weight) if form.activation_first else (weight, activation)
    product = jax.lax.dot_general(
        *operands,
        (((1,), (1,)), ((), ())),
        precision=jax.lax.Precision.HIGHEST,
        preferred_element_type=jnp.float32,
    )
    return product.T if form.activation_first else product


def _numbers(bits: jax.Array) -> jax.Array:
    return jax.lax.bitcast_convert_type(bits, jnp.bfloat16) if bits.dtype == jnp.uint16 else bits


def _dequantised(packed: jax.Array, scales: jax.Array) -> jax.Array:
    """[rows, cols / 2], [rows, groups] -> [rows, cols] in bfloat16"""
    steps = jnp.stack((packed >> 4, packed & 15), axis=-1).astype(jnp.bfloat16) - 8
    return (steps.reshape(*scales.shape, GROUP) * scales[..., None]).reshape(packed.shape[0], -1)


def _placed(array: np.ndarray[Any, Any]) -> jax.Array:
    """Returns the array as jax sees it: in place where its first element is aligned as XLA wants it, else a copy."""
    return jnp.from_dlpack(array)


def _reader(array: np.ndarray[Any, Any]) -> Callable[[], jax.Array]:
    """The activation changes between runs. Read in place it needs nothing; a copy has to be made anew each time."""
    placed = _placed(array)
    if placed.unsafe_buffer_pointer() == array.ctypes.data:
        return lambda: placed
    return lambda: _placed(array)
