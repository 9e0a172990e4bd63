"""Which binaries there are, when they are compiled, and their seconds against sums by hand."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import jax
import numpy as np
import pytest
from papers import published

from pytest_npubench.backends import backend
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.core.measurement import CompileRecord, Phase, Request
from pytest_npubench.engines.binary_estimate import Estimate, estimate
from pytest_npubench.engines.binary_facts import BinaryFacts
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine
from pytest_npubench.engines.jax_dense.forward import Caches, DecoderState
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.suites.hardware_files import load_all

from .conftest import Served
from .decoders import BUCKETS, TIED

FLAT = dataclasses.replace(TIED, name="flat", num_layers=1)


def names(compiles: Sequence[CompileRecord]) -> list[str]:
    return [record.name for record in compiles]


def steps_of(*buckets: int) -> list[str]:
    return [f"{step}-flat-b2-{bucket}" for bucket in buckets for step in ("prefill", "decode")]


def test_the_binaries_of_a_load() -> None:
    """k buckets are k prefills and k decodes, the moves between those that are neighbours, and once the weights."""
    cpu = backend("cpu")
    runtime = cpu.open(cpu.probe(timeout_s=60).devices, None)
    engine = StaticBucketEngine(FLAT, runtime, buckets=(8, 16, 32), batch_size=2)
    assert names(runtime.compiles) == ["weights-flat"]
    first = engine.run([Request(input_tokens=3, output_tokens=2)])
    assert names(runtime.compiles) == ["weights-flat", *steps_of(8)]
    assert first.e2e_s < sum(record.compile_s for record in engine.compiles[1:]), "the run's time holds its compiles"
    engine.load((8, 32))
    assert names(runtime.compiles) == ["weights-flat", *steps_of(8, 32)]
    engine.load((16,))
    everything = ["weights-flat", *steps_of(8, 32, 16), "move-flat-b2-8-16", "move-flat-b2-16-32"]
    assert names(runtime.compiles) == everything
    engine.load((8, 16, 32))
    engine.run([Request(input_tokens=3, output_tokens=20)])
    assert names(runtime.compiles) == everything
    assert list(engine.compiles) == runtime.compiles
    assert min(record.compile_s for record in engine.compiles) > 0


def test_an_engine_counts_its_own_binaries(serve: Callable[[str], Served], runtime: Any) -> None:
    """The runtime is shared by all engines here, so its list is longer."""
    own = {name: serve(name).engine.compiles for name in ("tied", "normed")}
    for name, compiles in own.items():
        assert names(compiles)[0] == f"weights-{name}"
        assert all(f"-{name}" in record for record in names(compiles))
    assert len(runtime.compiles) >= sum(map(len, own.values()))


def test_running_compiles_nothing(serve: Callable[[str], Served], runtime: Any) -> None:
    """Not ours, and no small one of jax's own that would hide in a sample."""
    engine = serve("tied").engine
    engine.load(BUCKETS)
    before = runtime.num_process_compiles
    engine.run([Request(input_tokens=3, output_tokens=35)])
    engine.run([Request(input_tokens=length, output_tokens=3) for length in (2, 9, 280)])
    engine.time_move(8, 16)
    assert runtime.num_process_compiles == before


def addresses(caches: Caches) -> list[int]:
    arrays = (*caches.keys, *caches.values)
    if not hasattr(arrays[0], "unsafe_buffer_pointer"):
        pytest.skip("this jax does not tell where an array lies")
    return [array.unsafe_buffer_pointer() for array in arrays]


def is_gone(caches: Caches) -> bool:
    return all(array.is_deleted() for array in (*caches.keys, *caches.values))


def test_prefill_and_decode_write_in_place(serve: Callable[[str], Served]) -> None:
    """The first prefill may copy: on the host jax may share the memory of the numpy zeros that a cache starts as."""
    engine = serve("tied").engine
    engine.load((16,))
    prompt = np.ones(16, np.int32), np.int32(5)
    engine.begin(16)
    state: DecoderState = engine._state._replace(caches=engine._new_caches(16))
    first = engine._prefill[16](engine.weights, state, *prompt, np.int32(0))
    places = addresses(first.caches)
    second = engine._prefill[16](engine.weights, first, *prompt, np.int32(1))
    stepped, tokens = engine._decode[16](engine.weights, second._replace(tokens=None, fixed_logits=None), second.tokens)
    assert is_gone(first.caches)
    assert is_gone(second.caches)
    assert second.lengths.is_deleted()
    assert not second.tokens.is_deleted()
    assert tokens.shape == second.tokens.shape
    assert addresses(jax.block_until_ready(stepped.caches)) == places


def test_a_move_writes_into_the_larger_buckets_own_caches(serve: Callable[[str], Served]) -> None:
    engine = serve("tied").engine
    engine.load((16, 32))
    source = engine._new_caches(16)
    target = engine._move[16, 32](source, engine._new_caches(32))
    places = addresses(target)
    moved = engine._move[16, 32](source, target)
    assert is_gone(target)
    assert not is_gone(source)
    assert addresses(jax.block_until_ready(moved)) == places


def test_a_bucket_keeps_its_caches_from_run_to_run(serve: Callable[[str], Served]) -> None:
    """However many runs: memory stays that of one set of caches a bucket."""
    engine = serve("tied").engine
    engine.run([Request(input_tokens=3, output_tokens=20)])
    places = {bucket: addresses(caches) for bucket, caches in engine._caches.items()}
    assert {8, 16, 32} <= places.keys()
    engine.run([Request(input_tokens=7, output_tokens=14)])
    engine.time_move(16, 32)
    assert {bucket: addresses(caches) for bucket, caches in engine._caches.items()} == places


def test_the_engine_has_all_that_a_campaign_asks_for(serve: Callable[[str], Served]) -> None:
    engine = serve("tied").engine
    asked = {*inspect.get_annotations(Engine), "load", "run", "time_move"}
    assert {name for name in asked if not hasattr(engine, name)} == set()
    assert (engine.name, engine.prefill_shared, engine.finished) == ("jax-dense", False, "freeze")


SPEC = replace(load_all([default_directory()])["tpu-v6e"], tensor_parallel=1)  # 1.75 GHz, 1,640 GB/s
NOTHING = replace(BinaryFacts(**dict.fromkeys([one.name for one in fields(BinaryFacts)], 0.0)), kernel_cycles=None)


def priced(cycles: float, vector_cycles: float | None, vector_bytes: float | None) -> Estimate:
    facts = replace(NOTHING, cycles=cycles, vector_cycles=vector_cycles, vector_bytes=vector_bytes)
    return estimate(facts, SPEC, dense_shape("llama-3.2-1b"), Phase.DECODE, 128)


def test_overpriced_products_of_one_row_count_by_their_bytes() -> None:
    found = priced(cycles=5_303_393, vector_cycles=4_428_393, vector_bytes=1.05e9)
    assert found.cycles_s == pytest.approx(0.5e-3)  # 875,000 cycles
    assert found.vector_s == pytest.approx(1.05e9 / 1.640e12)
    assert found.total_s == pytest.approx(0.5e-3 + 0.640e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("vector_cycles", "vector_bytes"),
    [
        pytest.param(2 * 1_750_000 * 0.99, 1.640e9, id="less than twice the bytes"),
        pytest.param(0.0, 0.0, id="none"),
        pytest.param(None, None, id="a record from before they were counted"),
    ],
)
def test_other_cycles_stay_as_the_compiler_says(vector_cycles: float | None, vector_bytes: float | None) -> None:
    found = priced(cycles=7_000_000, vector_cycles=vector_cycles, vector_bytes=vector_bytes)
    assert found.cycles_s == pytest.approx(4e-3)
    assert found.vector_s == 0.0


def test_what_a_price_takes_for_granted_is_said() -> None:
    links = replace(SPEC.peak, interconnect_bandwidth_bytes_per_s=SPEC.peak.memory_bandwidth_bytes_per_s)
    group, shape = replace(SPEC, tensor_parallel=4, peak=links), dense_shape("llama-3.2-1b")
    facts = replace(NOTHING, cycles=1e6, kernels=16.0, collectives=32.0, collective_bytes=1e6)
    prefill, decode = (estimate(facts, group, shape, phase, 128) for phase in Phase)
    collectives = "collectives at the links' full bandwidth"
    assert prefill.assumed == ("kernels at peak FLOP/s", collectives)
    assert decode.assumed == (collectives, "attention as XLA compiles it: a kernel in its place may take longer")
    assert estimate(replace(NOTHING, cycles=1e6), SPEC, shape, Phase.PREFILL, 128).assumed == ()


def test_kernels_count_by_their_machine_code_where_it_is_known() -> None:
    shape = dense_shape("llama-3.2-1b")
    facts = replace(NOTHING, cycles=1.75e6, kernels=16.0, kernel_cycles=3.5e6)
    found = estimate(facts, SPEC, shape, Phase.PREFILL, 2048)
    assert (found.kernels_s, found.total_s) == (pytest.approx(2e-3), pytest.approx(3e-3))
    assert found.assumed == ("kernels at a bundle a cycle, waiting for nothing",)
    at_peak = estimate(replace(facts, kernel_cycles=None), SPEC, shape, Phase.PREFILL, 2048)
    assert at_peak.kernels_s == pytest.approx(16 * 2 * 2048**2 * 32 * 64 / 918e12)


def test_v6e_operators_add_up_to_what_their_source_has() -> None:
    """Sums of the source's own rows, in us: layers of 128 to 2048 tokens."""
    table = published("tpu_v6e_operators").table("operators")
    layers = [sum(float(cell) for cell in row[3:9]) for row in table.rows if row[0] == "prefill"]
    assert layers == pytest.approx([303, 432, 871, 1920], rel=2e-3)
