"""Graphs of the static unit for parts of one matrix multiplication.

weight [rows, cols] and activation [tokens, cols] lie in the arena and are read in place; a part multiplies some rows
with its tokens padded to the graph's size, and copies what is not padding into the output [rows, tokens]. The
activation array is longer than its tokens; the zeros behind them are the padding. One executable serves all parts of
one (rows, cols, padded tokens).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena

_executables: dict[tuple[int, int, int], Any] = {}


def build(spec: Mapping[str, Any], arena: SharedArena) -> Callable[[], float]:
    """spec: weight, activation, output (names in the arena), first_row, num_rows, first_token, num_tokens,
    padded_tokens; fresh: compile even where there is such a graph."""
    rows = slice(spec["first_row"], spec["first_row"] + spec["num_rows"])
    weight = arena.view(spec["weight"])[rows]
    first, num_tokens, padded = spec["first_token"], spec["num_tokens"], spec["padded_tokens"]
    activation = arena.view(spec["activation"])[first : first + padded]
    output = arena.view(spec["output"])[rows, first : first + num_tokens]
    executable = _executable((*weight.shape, padded), fresh=bool(spec.get("fresh")))
    on_device, read_activation = _placed(weight), _reader(activation)

    def run() -> float:
        result = np.asarray(executable(on_device, read_activation()))
        began_s = perf_counter()
        np.copyto(output, result[:, :num_tokens])
        return perf_counter() - began_s

    return run


def forget() -> None:
    _executables.clear()


def _executable(shape: tuple[int, int, int], *, fresh: bool) -> Any:
    if fresh or shape not in _executables:
        rows, cols, tokens = shape
        weight = jax.ShapeDtypeStruct((rows, cols), jnp.float32)
        activation = jax.ShapeDtypeStruct((tokens, cols), jnp.float32)
        _executables[shape] = jax.jit(_product).lower(weight, activation).compile()
    return _executables[shape]


def _product(weight: jax.Array, activation: jax.Array) -> jax.Array:
    """[rows, cols], [tokens, cols] -> [rows, tokens]"""
    return jax.lax.dot_general(weight, activation, (((1,), (1,)), ((), ())), precision=jax.lax.Precision.HIGHEST)


def _placed(array: np.ndarray[Any, Any]) -> jax.Array:
    """The array as jax sees it: in place where its first element is aligned as XLA wants it, else a copy."""
    return jnp.from_dlpack(array)


def _reader(array: np.ndarray[Any, Any]) -> Callable[[], jax.Array]:
    """The activation changes between runs. Read in place it needs nothing; a copy has to be made anew each time."""
    placed = _placed(array)
    if placed.unsafe_buffer_pointer() == array.ctypes.data:
        return lambda: placed
    return lambda: _placed(array)
