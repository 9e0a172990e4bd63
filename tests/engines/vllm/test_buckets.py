"""Declared and observed buckets of vLLM builds, and compiles in their logs. Pure: nothing runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.vllm.buckets import (
    BucketSet,
    boundary_lengths,
    compare_buckets,
    declared_in_config,
    declared_in_log,
    padding_waste,
    step_between,
)
from pytest_npubench.engines.vllm.compiles import check_no_late_compiles, compiles_in_log, late_compiles
from pytest_npubench.errors import ConfigError, LengthError, MeasurementError

TPU_LOG = """\
INFO 08-16 20:23:24 [utils.py:211] Prepared token paddings: [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
INFO 08-16 20:23:24 [utils.py:157] Prepared request paddings: [8, 16, 32, 64, 128, 256]
INFO 08-16 20:23:24 [utils.py:176] Prepared attn request paddings: [256]
INFO 08-16 20:23:30 [compilation_manager.py:66] Enabling JAX compile cache.
INFO 08-16 20:24:01 [compilation_manager.py:90] Compilation of worker0 backbone finished in 3.25 [secs].
INFO 08-16 20:24:02 [compilation_manager.py:90] Compilation finished in 0.50 [secs].
INFO 08-16 20:25:00 [core.py:403] init engine (profile, create kv cache, warmup model) took 96.00 s
INFO 08-16 20:26:00 [loggers.py:1] Avg prompt throughput: 10.0 tokens/s
""".splitlines()
CUDA_LOG = """\
INFO [core.py:133] Initializing a V1 LLM engine with config: compilation_config={'mode': 3, \
'cudagraph_capture_sizes': [1, 2, 4, 8, 16], 'max_cudagraph_capture_size': 16}
INFO [gpu_model_runner.py:6582] Graph capturing finished in 12 secs, took 0.40 GiB
INFO [core.py:403] init engine (profile, create kv cache, warmup model) took 30.00 s
""".splitlines()
NEURON_LOG = [
    "override_neuron_config={\"context_encoding_buckets\": [256, 512], 'token_generation_buckets': [512, 1024]}"
]


def test_the_sets_of_a_tpu_s_log() -> None:
    found = {one.kind: one for one in declared_in_log(TPU_LOG)}
    assert found["tokens"].buckets == tuple(16 * 2**power for power in range(10))
    assert found["requests"].buckets == (8, 16, 32, 64, 128, 256)
    assert found["attention requests"].buckets == (256,)
    assert found["requests"].source == "log, line 2"
    assert len(found) == 3


def test_the_sets_of_cuda_and_neuron_logs() -> None:
    (graphs,) = declared_in_log(CUDA_LOG)
    assert (graphs.kind, graphs.buckets) == ("cudagraph", (1, 2, 4, 8, 16))
    assert {one.kind: one.buckets for one in declared_in_log(NEURON_LOG)} == {
        "context_encoding": (256, 512),
        "token_generation": (512, 1024),
    }


def test_the_last_set_of_a_kind_counts_and_none_is_none() -> None:
    lines = ["Prepared token paddings: [16, 32]", "Prepared token paddings: []", "Prepared token paddings: [64]"]
    (found,) = declared_in_log(lines)
    assert (found.buckets, found.source) == ((64,), "log, line 3")
    assert declared_in_log(["nothing of the kind", "Prepared token paddings: [unreadable]"]) == ()


def test_the_sets_of_configurations_as_objects_and_as_mappings() -> None:
    vllm = SimpleNamespace(
        compilation_config=SimpleNamespace(cudagraph_capture_sizes=[8, 4, 2, 1]),  # once logged largest first
        additional_config={"override_neuron_config": {"context_encoding_buckets": [256, 512]}},
    )
    graphs, context = declared_in_config(vllm)
    assert (graphs.kind, graphs.buckets) == ("cudagraph", (1, 2, 4, 8))
    assert graphs.source == "compilation_config.cudagraph_capture_sizes"
    assert (context.kind, context.buckets) == ("context_encoding", (256, 512))
    assert context.source == "additional_config.override_neuron_config.context_encoding_buckets"

    neuron = {"neuron_config": {"context_encoding_buckets": [128], "token_generation_buckets": [128, 256]}}
    assert [one.buckets for one in declared_in_config(neuron)] == [(128,), (128, 256)]
    assert declared_in_config(SimpleNamespace(compilation_config=None, additional_config={})) == ()


@pytest.mark.parametrize("sizes", [[1, 1, 2], [0, 8], [8.5]])
def test_a_declared_set_that_is_none_is_refused_with_its_place(sizes: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"compilation_config\.cudagraph_capture_sizes"):
        declared_in_config({"compilation_config": {"cudagraph_capture_sizes": sizes}})
    with pytest.raises(ConfigError, match="log, line 1"):
        declared_in_log(["Prepared token paddings: [16, 16]"])


def times_of(bucket_times: dict[int, float], lengths: tuple[int, ...], spread: float = 0.01) -> dict[int, list[float]]:
    """An engine that pads: each length takes its bucket's seconds, four runs with a relative spread around it."""
    edges = sorted(bucket_times)
    noise = np.array([-1.0, 1.0, -0.5, 0.5]) * spread
    return {
        length: (bucket_times[next(edge for edge in edges if edge >= length)] * (1 + noise)).tolist()
        for length in lengths
    }


def test_the_docstring_s_set() -> None:
    real = {16: 1.0, 32: 1.5, 48: 2.0, 64: 3.0}
    lengths = (*boundary_lengths((16, 32, 64)), 47, 48, 49)
    found = compare_buckets((16, 32, 64), times_of(real, lengths))
    assert found == BucketSet(
        declared=(16, 32, 64), observed=(16, 32, 48), missing=(), extra=(48,), inconclusive=(), untested=(64,)
    )
    assert not found.agrees


def test_a_declared_boundary_without_a_step_is_missing() -> None:
    found = compare_buckets((16, 32, 64), times_of({32: 1.0, 64: 2.0}, boundary_lengths((16, 32, 64))))
    assert (found.observed, found.missing, found.agrees) == ((32,), (16,), False)


def test_a_boundary_that_is_one_off_is_seen_from_both_sides() -> None:
    """At 127 and not at 128: 127 is extra and 128 missing."""
    found = compare_buckets((128, 256), times_of({127: 1.0, 256: 2.0}, boundary_lengths((128, 256))))
    assert (found.extra, found.missing, found.untested) == ((127,), (128,), (256,))


def test_noise_is_inconclusive_and_no_verdict() -> None:
    found = compare_buckets((16, 32), times_of({16: 1.0, 32: 1.5}, boundary_lengths((16, 32)), spread=0.6))
    assert (found.inconclusive, found.observed, found.missing) == ((15, 16, 31), (), ())
    assert found.agrees


@given(
    st.lists(st.integers(2, 200), min_size=1, max_size=5, unique=True).map(sorted),
    st.lists(st.integers(2, 200), min_size=1, max_size=5, unique=True).map(sorted),
)
def test_every_declared_boundary_is_named_once(real: list[int], declared: list[int]) -> None:
    """Against the engine's own buckets, timed at the boundaries of what it declares."""
    timed = {bucket: 1.5**index for index, bucket in enumerate((*real, 1000))}
    found = compare_buckets(declared, times_of(timed, boundary_lengths(declared)))
    assert set(found.missing) | (set(found.observed) & set(declared)) | set(found.untested) == set(declared)
    tested = {length for length in boundary_lengths(declared) if length + 1 in boundary_lengths(declared)}
    assert set(found.observed) == set(real) & tested
    assert set(found.extra) == set(found.observed) - set(declared)
    assert found.inconclusive == ()


@pytest.mark.parametrize(
    ("factor", "wanted"), [(1.0, "flat"), (1.05, "flat"), (1.3, "step"), (0.7, "flat"), (1.1, "inconclusive")]
)
def test_a_step_is_a_factor_that_is_proven(factor: float, wanted: str) -> None:
    shorter = [0.99, 1.0, 1.01, 1.0]
    assert step_between(shorter, [factor * one for one in shorter]) == wanted


def test_times_without_spread_are_exact() -> None:
    assert step_between([1.0, 1.0], [1.2, 1.2]) == "step"
    assert step_between([1.0, 1.0], [1.0, 1.0]) == "flat"


@pytest.mark.parametrize(
    ("shorter", "longer", "words"),
    [([1.0], [1.0, 1.0], "shorter_s: one time"), ([1.0, 1.0], [1.0, 0.0], "longer_s: value 1 of 2 is 0.0")],
)
def test_times_that_cannot_be_used(shorter: list[float], longer: list[float], words: str) -> None:
    with pytest.raises(MeasurementError, match=words):
        step_between(shorter, longer)


def test_a_step_needs_a_size() -> None:
    with pytest.raises(ConfigError, match="min_step is 0"):
        step_between([1.0, 1.0], [1.0, 1.0], min_step=0)


def test_lengths_to_time() -> None:
    assert boundary_lengths((1, 2, 16)) == (1, 2, 3, 15, 16)


def test_padding_waste_of_the_docstring_s_trace() -> None:
    waste = padding_waste((16, 32), [10, 17, 40])
    assert (waste.num_lengths, waste.num_above, waste.true_tokens, waste.padded_tokens) == (3, 1, 27, 48)
    assert waste.padding_fraction == pytest.approx(0.4375)
    assert padding_waste((16,), [40]).padding_fraction is None
    assert padding_waste((16,), []).num_lengths == 0


@given(st.lists(st.integers(1, 300), max_size=30))
def test_padding_waste_against_a_loop(lengths: list[int]) -> None:
    buckets, true, padded = (7, 64, 200), 0, 0
    for length in lengths:
        bucket = next((bucket for bucket in buckets if bucket >= length), None)
        if bucket is not None:
            true, padded = true + length, padded + bucket
    waste = padding_waste(buckets, lengths)
    assert (waste.true_tokens, waste.padded_tokens) == (true, padded)
    assert waste.num_above == sum(length > 200 for length in lengths)


def test_lengths_that_are_none_are_refused() -> None:
    with pytest.raises(LengthError, match="lengths: 0 at index 1"):
        padding_waste((16,), [3, 0])


def test_compiles_of_logs_with_names_seconds_and_lines() -> None:
    first, second = compiles_in_log(TPU_LOG)
    assert (first.name, first.compile_s, first.line) == ("worker0 backbone", 3.25, 5)
    assert (second.name, second.compile_s, second.line) == ("", 0.5, 6)
    (graphs,) = compiles_in_log(CUDA_LOG)
    assert (graphs.name, graphs.compile_s) == ("Graph capturing", 12.0)
    (compiled,) = compiles_in_log(["Compiling a graph for compile range (1, 8192) takes 4.21 s"])
    assert (compiled.name, compiled.compile_s) == ("Compiling a graph for compile range (1, 8192)", 4.21)


def test_a_compile_after_warm_up_is_a_failure() -> None:
    check_no_late_compiles(TPU_LOG)
    late = [*TPU_LOG, "INFO [compilation_manager.py:90] Compilation of worker0 logits finished in 2.00 [secs]."]
    assert [one.name for one in late_compiles(late)] == ["worker0 logits"]
    with pytest.raises(MeasurementError, match=r"1 compiled after warm-up: worker0 logits \(2 s, line 9\)"):
        check_no_late_compiles(late)


def test_a_log_that_does_not_say_when_warm_up_ended_proves_nothing() -> None:
    with pytest.raises(MeasurementError, match="the log of 6 lines has none with 'init engine"):
        check_no_late_compiles(TPU_LOG[:6])
    check_no_late_compiles(TPU_LOG[:6], warm_up_ends="Compilation finished in 0.50")
