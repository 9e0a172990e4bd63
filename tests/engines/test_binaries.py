"""Which binaries there are and when they are compiled, and that steps write into the memory that is there."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import pytest

from pytest_npubench.backends import backend
from pytest_npubench.core.measurement import CompileRecord, Request
from pytest_npubench.engines.jax_dense.engine import StaticBucketEngine
from pytest_npubench.engines.jax_dense.forward import Caches, DecoderState
from pytest_npubench.engines.protocol import Engine

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
