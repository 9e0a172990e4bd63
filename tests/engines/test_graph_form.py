"""A step's operations in each form against numpy, and what the host's compiler makes of a decode step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pytest
from jax.sharding import Mesh

from pytest_npubench.engines.hlo import parse
from pytest_npubench.engines.jax_dense.binaries import DecoderBinaries
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine
from pytest_npubench.engines.jax_dense.forward import Caches, prefill_hidden
from pytest_npubench.engines.jax_dense.graph_form import LAYERS_A_SUM, PORTABLE, GraphForm, graph_form
from pytest_npubench.engines.jax_dense.layers import attend_causal, scatter_rows, write_rows
from pytest_npubench.engines.jax_dense.memory import cache_bytes
from pytest_npubench.engines.jax_dense.splash_attention import attend_splash
from pytest_npubench.engines.jax_dense.weights import AXIS, random_weights

from .conftest import Served
from .decoders import BATCH_SIZE, NORMED

Array = npt.NDArray[np.float32]


def normal(*dims: int) -> Array:
    return np.random.default_rng(dims).standard_normal(dims, dtype=np.float32)


def one_device(runtime: Any) -> Mesh:
    return Mesh(np.array(runtime.devices[:1]), (AXIS,))


@pytest.mark.parametrize("write", [write_rows, scatter_rows])
def test_each_row_is_written_at_its_own_length(write: Callable[..., Any]) -> None:
    cache, new, lengths = normal(3, 2, 8, 4), normal(3, 2, 4), np.array([7, 0, 3], np.int32)
    want = cache.copy()
    for row, length in enumerate(lengths):
        want[row, :, length] = new[row]
    np.testing.assert_array_equal(write(jnp.asarray(cache), jnp.asarray(new), jnp.asarray(lengths)), want)


@pytest.mark.parametrize("write", [write_rows, scatter_rows])
def test_a_row_that_has_outgrown_the_cache_harms_no_other(write: Callable[..., Any]) -> None:
    cache, new, lengths = normal(3, 2, 8, 4), normal(3, 2, 4), np.array([3, 8, 30], np.int32)
    written = np.asarray(write(jnp.asarray(cache), jnp.asarray(new), jnp.asarray(lengths)))
    np.testing.assert_array_equal(written[0, :, 3], new[0])
    np.testing.assert_array_equal(np.delete(written[0], 3, axis=1), np.delete(cache[0], 3, axis=1))
    np.testing.assert_array_equal(written[1:, :, :-1], cache[1:, :, :-1])


@pytest.mark.parametrize(("length", "num_heads", "num_kv_heads", "head_dim"), [(300, 4, 2, 16), (8, 2, 2, 64)])
def test_attention_of_a_prompt(runtime: Any, length: int, num_heads: int, num_kv_heads: int, head_dim: int) -> None:
    """The kernel pads both lengths to whole lanes: three blocks of 128, and one."""
    q, k, v = normal(length, num_heads, head_dim), *normal(2, num_kv_heads, length, head_dim)
    kv_heads = [head * num_kv_heads // num_heads for head in range(num_heads)]
    want = np.stack([attend(q[:, head], k[kv], v[kv]) for head, kv in enumerate(kv_heads)], axis=1)
    arrays = [jnp.asarray(array[None]) for array in (q, k, v)]
    kernel = jax.jit(partial(attend_splash, one_device(runtime), interpret=True))
    np.testing.assert_allclose(attend_causal(*arrays)[0], want, atol=1e-5)
    np.testing.assert_allclose(kernel(*arrays)[0], want, atol=1e-5)


def attend(q: Array, k: Array, v: Array) -> npt.NDArray[np.float64]:
    """One head [length, head_dim], in float64."""
    scores = q.astype(np.float64) @ k.T / np.sqrt(q.shape[1])
    scores[np.triu_indices(len(q), 1)] = -np.inf
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    attended: npt.NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True) @ v
    return attended


def test_only_a_tpu_has_a_form_of_its_own(runtime: Any) -> None:
    mesh = one_device(runtime)
    assert graph_form("cpu", mesh) is graph_form("gpu", mesh) is PORTABLE
    own = graph_form("tpu", mesh)
    assert (own.write_step, own.layers_a_sum, own.keeps_gated) == (write_rows, LAYERS_A_SUM, True)
    assert (PORTABLE.layers_a_sum, PORTABLE.keeps_gated) == (0, False)


@pytest.mark.parametrize(
    ("layers_a_sum", "keeps_gated", "num_barriers"),
    [(1, False, 3), (2, False, 1), (3, False, 1), (4, False, 0), (0, True, 4), (2, True, 5)],
)
def test_what_the_compiler_may_not_join_changes_no_prompt(
    layers_a_sum: int, keeps_gated: bool, num_barriers: int
) -> None:
    """Of four layers, the last of which has none behind it."""
    shape = dataclasses.replace(NORMED, num_layers=4)
    weights = random_weights(shape, jnp.uint32(0), jnp.float32)
    empty = tuple(jnp.zeros((1, shape.num_kv_heads, 16, shape.head_dim)) for _ in range(4))
    numbers = jnp.arange(16), jnp.int32(11), jnp.int32(0)

    def run(form: GraphForm) -> Callable[..., Any]:
        return partial(prefill_hidden, shape, form=form)

    form = dataclasses.replace(PORTABLE, layers_a_sum=layers_a_sum, keeps_gated=keeps_gated)
    arguments = weights, Caches(empty, empty), *numbers
    assert str(jax.make_jaxpr(run(form))(*arguments)).count("optimization_barrier") == num_barriers
    for own, want in zip(*(jax.tree.leaves(run(one)(*arguments)) for one in (form, PORTABLE)), strict=True):
        np.testing.assert_array_equal(own, want)


def test_a_decode_step_copies_no_cache_on_the_host(served: Served) -> None:
    served.engine.load((32,))
    text, aliased = cache_copies(served.engine, served.engine._decode[32])
    assert text == []
    assert aliased >= cache_bytes(served.engine.shape, 32, BATCH_SIZE, "fp32")


def test_row_updates_would_copy_it(serve: Callable[[str], Served]) -> None:
    """Where there is one key-value head: so the host keeps the scatter, and the test above can see copies."""
    engine = serve("normed").engine
    form = GraphForm(write_step=write_rows, attend_prompt=attend_causal)
    shape, devices = engine.shape, list(engine._binaries.mesh.devices.flat)
    decode = DecoderBinaries(shape, devices, batch_size=BATCH_SIZE, dtype="fp32", form=form).decode(32)
    lowered = jax.jit(decode.function, donate_argnums=decode.donate).lower(*decode.arguments)
    assert cache_copies(engine, lowered.compile())[0] != []


def cache_copies(engine: StaticBucketEngine, binary: Any) -> tuple[list[str], int]:
    """The copies of a whole cache in a binary of bucket 32, and the bytes it writes in place."""
    num_elements = BATCH_SIZE * engine.shape.num_kv_heads * 32 * engine.shape.head_dim
    copies = parse(binary.as_text()).copies(num_elements)
    return [copy.name for copy in copies], binary.memory_analysis().alias_size_in_bytes
