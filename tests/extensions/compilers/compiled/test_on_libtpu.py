"""The TPU's own compiler on the decoder and on what is planted in it. It runs without a TPU.

Skipped unless libtpu is installed (`pip install libtpu`; `make preflight` has an environment with it); no test
dependency, as its licence is Google Cloud's.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from small_decoders import small_mixture

from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.binary_estimate import attention_flops
from pytest_npubench.engines.binary_facts import BinaryFacts, BinaryRequest, ServingBinaryRequest
from pytest_npubench.engines.jax_dense.memory import cache_bytes, weight_bytes
from pytest_npubench.engines.jax_moe.sizes import ServingSizes
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.errors import CompileRefusedError, ConfigError
from pytest_npubench.extensions.compilers.compiled.compiler import TopologyCompiler
from pytest_npubench.extensions.compilers.compiled.platforms import ENVIRONMENT
from pytest_npubench.processes.child import Child, hosted
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.exact import judge_exact

pytestmark = pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed")

# heads, head_dim and batch of llama-3.2-1b, where a scatter's copies were seen; one layer is enough to see them
SHAPE = dataclasses.replace(
    dense_shape("llama-3.2-1b"),
    name="narrow",
    num_layers=1,
    hidden=256,
    num_heads=32,
    num_kv_heads=8,
    head_dim=64,
    vocab_size=512,
)
BUCKET, BATCH_SIZE, NUM_DEVICES = 512, 8, 4
GB = 10**9


class Planted(TopologyCompiler):
    """The real compiler; what is wrong with the decoder that it is given, "plant" says."""

    numbers = itertools.count(1)

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        super().__init__(arguments)
        self._plant = str(arguments["plant"])
        self._reference_cpu_s = cache(self._reference_cpu_s)  # once a process

    def _lowered(self, request: BinaryRequest, num_devices: int) -> Any:
        from unittest.mock import patch

        from pytest_npubench.engines.jax_dense import binaries, forward, graph_form
        from pytest_npubench.engines.jax_dense.graph_form import PORTABLE
        from pytest_npubench.engines.jax_moe import tpu_kernels

        if self._plant == "scatter":
            with patch.object(binaries, "graph_form", lambda *_: PORTABLE):
                return super()._lowered(request, num_devices)
        if self._plant == "sums":
            with patch.object(graph_form, "LAYERS_A_SUM", 0):
                return super()._lowered(request, num_devices)
        if self._plant == "joined":
            plain = forward.feed_forward
            with patch.object(forward, "feed_forward", lambda layer, x, keeps_gated: plain(layer, x)):
                return super()._lowered(request, num_devices)
        if self._plant == "sliced":
            with patch.object(tpu_kernels.TpuKernels, "multiply", sliced_multiply):
                return super()._lowered(request, num_devices)
        if self._plant in ("request", "work"):
            add = {"request": partial(next, self.numbers), "work": lambda: 1}[self._plant]
            with patch.object(forward, "decode", partial(more_decode, forward.decode, add)):
                return super()._lowered(request, num_devices)
        return super()._lowered(request, num_devices)


def sliced_multiply(_: Any, rows: Any, matrices: Any, sizes: Any, first: Any) -> Any:
    """A grouped product of a layer's matrices, cut out of the stack."""
    from jax import lax

    return lax.ragged_dot(rows, lax.dynamic_slice_in_dim(matrices, first, len(sizes)), sizes)


def more_decode(decode: Callable[..., Any], number: Callable[[], int], shape: Any, *arguments: Any, form: Any) -> Any:
    """A decode step that counts up by what the trace was given, and multiplies its table once."""
    import jax.numpy as jnp

    weights, _ = arguments
    state = decode(shape, *arguments, form=form)
    table = weights["embedding"]
    more = jnp.tanh(table @ table.T).sum() > 1e9  # never
    return state._replace(tokens=state.tokens + more.astype(jnp.int32) + number() - 1)


def started(folder: Path, plant: str = "", topology: str = "v5e:2x2") -> Child:
    device = {"family": "tpu", "topology": topology, "target": ""}
    arguments = {**device, "folder": str(folder), "memory_bytes": 8 * GB, "plant": plant}
    child = hosted(f"{__name__}:Planted", arguments, name="the compiler", timeout_s=600.0, environment=ENVIRONMENT)
    child.started()
    return child


@pytest.fixture(scope="module")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Child]]:
    made: dict[str, Child] = {}

    def compiler(plant: str = "") -> Child:
        if plant not in made:
            made[plant] = started(tmp_path_factory.mktemp("compiled"), plant)
        return made[plant]

    yield compiler
    for child in made.values():
        child.close()


@pytest.fixture(scope="module")
def facts(compilers: Callable[..., Child]) -> Callable[..., BinaryFacts]:
    def ask(plant: str = "", phase: Phase = Phase.DECODE, **changes: Any) -> BinaryFacts:
        request = BinaryRequest(shape=SHAPE, dtype="bf16", batch_size=BATCH_SIZE, phase=phase, bucket=BUCKET)
        _, found = compilers(plant).call("facts", dataclasses.replace(request, **changes), NUM_DEVICES)
        assert isinstance(found, BinaryFacts)
        return found

    return ask


@pytest.mark.parametrize("batch_size", [1, BATCH_SIZE])
@pytest.mark.parametrize("phase", Phase)
def test_the_decoder_copies_no_cache_and_is_one_module(
    facts: Callable[..., BinaryFacts], phase: Phase, batch_size: int
) -> None:
    found = facts(phase=phase, batch_size=batch_size)
    assert (found.cache_copies, found.modules) == (0, 1)
    caches = cache_bytes(SHAPE, BUCKET, batch_size, "bf16", NUM_DEVICES)
    assert min(found.aliased_bytes, found.donated_bytes) >= caches
    assert found.kernels == (1 if phase is Phase.PREFILL else 0)
    assert found.reference_cpu_s > 0
    assert found.cycles > 0


def test_a_prefill_keeps_no_hidden_states_of_all_its_layers(facts: Callable[..., BinaryFacts]) -> None:
    """Left to itself the compiler sums what all layers added again at the end, for which it keeps each of them."""
    shape = dataclasses.replace(SHAPE, num_layers=24, hidden=2048, intermediate=256)
    own, left = (facts(plant, Phase.PREFILL, shape=shape, bucket=2048) for plant in ("", "sums"))
    layer_bytes = 2 * 2048 * shape.hidden
    assert own.temporary_bytes < 8 * layer_bytes
    assert left.temporary_bytes > shape.num_layers * layer_bytes
    assert own.cycles <= left.cycles


def test_a_short_prompts_feed_forward_block_is_two_kernels(facts: Callable[..., BinaryFacts]) -> None:
    """Left to itself the compiler puts the products with `up` and `down` into one, which it estimates to be slower."""
    shape = dataclasses.replace(dense_shape("mistral-7b-v0.3"), num_layers=4)
    own, left = (facts(plant, Phase.PREFILL, shape=shape, bucket=128, batch_size=1) for plant in ("", "joined"))
    assert own.cycles < left.cycles


def test_attention_takes_the_cycles_of_its_machine_code(facts: Callable[..., BinaryFacts]) -> None:
    """A v5e multiplies 65,536 pairs a cycle at most; 10 blocks of 512 are computed of 2,048 tokens, and 16 passed."""
    short, long = (facts(phase=Phase.PREFILL, bucket=length).kernel_cycles for length in (512, 2048))
    assert short > attention_flops(SHAPE, 512) / NUM_DEVICES / (2 * 65_536)
    assert 8 * short < long < 16 * short
    assert facts().kernel_cycles is None


def test_layers_that_serve_copy_nothing_and_a_product_of_a_slice_copies_the_layers_experts(
    compilers: Callable[..., Child],
) -> None:
    shape = small_mixture(
        "mixture", 16, 4, hidden=384, num_heads=16, num_kv_heads=4, head_dim=128, intermediate=256, vocab_size=512
    )
    sizes = ServingSizes(kv_capacity_tokens=4096, block_size_tokens=64, chunk_tokens=128, max_batch_size=8)
    request = ServingBinaryRequest(shape=shape, dtype="bf16", sizes=sizes, size=sizes.passes[0])
    own, sliced = (compilers(plant).call("facts", request, NUM_DEVICES)[1] for plant in ("", "sliced"))
    assert (own.cache_copies, own.expert_copies, own.modules) == (0, 0, 1)
    # keys and values of four layers, and hidden states, each slot's
    slot_bytes = 2 * (4 * 2 * 128 + shape.hidden)
    assert own.aliased_bytes >= own.donated_bytes == sizes.num_layer_pages * 64 * slot_bytes
    assert sliced.expert_copies >= 3


def test_a_planted_scatter_copies_keys_and_values_there_and_back(facts: Callable[..., BinaryFacts]) -> None:
    found = facts("scatter")
    assert found.cache_copies >= 4
    assert found.copy_cycles > 0.2 * found.cycles


def test_a_request_that_is_compiled_in_is_another_module(facts: Callable[..., BinaryFacts]) -> None:
    assert facts("request").modules == 2


def test_more_cycles_are_a_regression_and_the_same_are_none(facts: Callable[..., BinaryFacts]) -> None:
    """Another process says the same to the cycle."""
    own, again, more = facts().cycles, facts("no plant").cycles, facts("work").cycles
    assert judge_exact([[[own]]], [[again]]).kind is VerdictKind.UNCHANGED
    assert own * 1.02 < more
    assert judge_exact([[[own]]], [[more]]).kind is VerdictKind.REGRESSED


def test_bytes_a_device_are_those_counted(facts: Callable[..., BinaryFacts]) -> None:
    """The compiler's layouts pad a cache of head_dim 64 by nothing; a norm takes up a whole tile."""
    counted = weight_bytes(SHAPE, "bf16", 4) + cache_bytes(SHAPE, BUCKET, BATCH_SIZE, "bf16", NUM_DEVICES)
    assert facts().argument_bytes == pytest.approx(counted, rel=0.01)


def test_what_does_not_fit_a_chip_is_refused_with_numbers(facts: Callable[..., BinaryFacts]) -> None:
    with pytest.raises(CompileRefusedError, match=r"RESOURCE_EXHAUSTED.*of"):
        facts(shape=dataclasses.replace(SHAPE, vocab_size=2**28))


def test_an_unknown_topology_is_named_with_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'v9:2x2'.*it knows v3:2x2"):
        started(tmp_path, topology="v9:2x2")


def test_what_was_compiled_is_kept_for_the_run_that_goes_on(tmp_path: Path) -> None:
    request = BinaryRequest(shape=SHAPE, dtype="bf16", batch_size=BATCH_SIZE, phase=Phase.DECODE, bucket=BUCKET)
    found = []
    for _ in range(2):
        child = started(tmp_path)
        found.append(child.call("facts", request, NUM_DEVICES))
        child.close()
    assert found[0] == found[1]  # compile seconds too: nothing was compiled again
