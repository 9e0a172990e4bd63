"""Declared buckets of vLLM builds, and compiles in their logs. Pure: nothing runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.extensions.vllm.buckets import (
    declared_in_config,
    declared_in_log,
)
from pytest_npubench.extensions.vllm.process import compiles_in_log, late_compiles

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


def test_compiles_of_logs_with_names_seconds_and_lines() -> None:
    first, second = compiles_in_log(TPU_LOG)
    assert (first.name, first.compile_s, first.line) == ("worker0 backbone", 3.25, 5)
    assert (second.name, second.compile_s, second.line) == ("", 0.5, 6)
    (graphs,) = compiles_in_log(CUDA_LOG)
    assert (graphs.name, graphs.compile_s) == ("Graph capturing", 12.0)
    (compiled,) = compiles_in_log(["Compiling a graph for compile range (1, 8192) takes 4.21 s"])
    assert (compiled.name, compiled.compile_s) == ("Compiling a graph for compile range (1, 8192)", 4.21)


def test_a_compile_after_warm_up_is_late() -> None:
    assert late_compiles(TPU_LOG) == ()
    late = [*TPU_LOG, "INFO [compilation_manager.py:90] Compilation of worker0 logits finished in 2.00 [secs]."]
    assert [one.name for one in late_compiles(late)] == ["worker0 logits"]


def test_a_log_that_does_not_say_when_warm_up_ended_proves_nothing() -> None:
    with pytest.raises(MeasurementError, match="the log of 6 lines has none with 'init engine"):
        late_compiles(TPU_LOG[:6])
    assert not late_compiles(TPU_LOG[:6], warm_up_ends="Compilation finished in 0.50")
