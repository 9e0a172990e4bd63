"""What the engine on OpenVINO refuses, with the words a person acts on, and what a failing device becomes."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engines.decoders import TIED
from pytest_npubench.core.measurement import Request
from pytest_npubench.engines.canary_kernels import KERNELS, CanaryKernels
from pytest_npubench.errors import ConfigError, LengthError, MeasurementError
from pytest_npubench.suites.buckets import reference_buckets

from .conftest import Twins


@pytest.fixture
def make(cpu_plugin: Any) -> Callable[..., Any]:
    from pytest_npubench.engines.openvino_dense.engine import OpenVinoBucketEngine

    def build(**changes: Any) -> Any:
        return OpenVinoBucketEngine(TIED, cpu_plugin, **({"buckets": (8, 16), "batch_size": 2} | changes))

    return build


def test_settings_it_cannot_have(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match="dtype 'bf16' is not one that decoders run in on OpenVINO: fp32, fp16"):
        make(dtype="bf16")
    with pytest.raises(ConfigError, match="batch_size is 0; want at least 1"):
        make(batch_size=0)
    with pytest.raises(ConfigError):
        make(buckets=(16, 8))
    engine = make()
    with pytest.raises(ConfigError, match=r"bucket 12 is not in the engine's set \(8, 16\)"):
        engine.load((12,))
    with pytest.raises(ConfigError, match=r"move 16 -> 8: want a bucket and the next larger one of \(8, 16\)"):
        engine.time_move(16, 8)


@pytest.mark.parametrize(
    ("lengths", "words"),
    [
        ([(17, 1)], "17 is longer than the largest bucket, 16"),
        ([(16, 2)], "17 is longer than the largest bucket, 16"),
        ([], r"0 requests; the engine is compiled for 1\.\.2"),
        ([(1, 1)] * 3, r"3 requests; the engine is compiled for 1\.\.2"),
        ([(5, 2), (5, 0)], "request 1: 5 prompt and 0 output tokens; want at least 1"),
    ],
)
def test_a_batch_that_cannot_run(make: Callable[..., Any], lengths: list[tuple[int, int]], words: str) -> None:
    with pytest.raises(LengthError, match=words):
        make().run([Request(input_tokens=inputs, output_tokens=outputs) for inputs, outputs in lengths])


def test_prompts_that_cannot_run(make: Callable[..., Any]) -> None:
    with pytest.raises(LengthError, match="1 prompts with 2 output lengths"):
        make().generate([np.ones(4, np.int32)], [1, 2])
    with pytest.raises(ConfigError, match=r"request 0: a prompt token outside the vocabulary, 0\.\.127"):
        make().generate([np.array([128], np.int32)], [1])


def test_a_device_that_fails_in_a_run(make: Callable[..., Any]) -> None:
    """FAKE: a request as a driver that lost its device would answer."""

    def lost() -> None:
        raise RuntimeError(
            "Exception from infer_request.cpp:224:\n[GPU] clFinish, error code: -5 CL_OUT_OF_RESOURCES\n"
        )

    engine = make()
    engine.load((8,))
    fake = SimpleNamespace(start_async=lambda: None, wait=lost)
    engine._binaries[8]._prefill = fake
    with pytest.raises(MeasurementError, match=r"the device did not finish: \[GPU\] clFinish, error code: -5"):
        engine.generate([np.ones(4, np.int32)], [1])


def test_no_memory(cpu_plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real refusal: the plugin is asked for tensors of 2^42 bytes."""
    import openvino as ov
    from openvino import opset13 as op

    from pytest_npubench.engines.openvino_dense import engine as openvino_engine

    def enormous(*_: Any) -> Any:
        x = op.parameter([2**40], np.float32)
        return SimpleNamespace(model=lambda: ov.Model([op.relu(x)], [x], "enormous"))

    monkeypatch.setattr(openvino_engine.graphs, "prefill", enormous)
    monkeypatch.setattr(openvino_engine.graphs, "decode", enormous)
    with pytest.raises(MeasurementError, match=r"^prefill-tied-b1-8: out of memory on CPU: std::bad_alloc"):
        openvino_engine.BucketBinaries(TIED, cpu_plugin, {}, bucket=8, batch_size=1)


def test_the_bench_takes_what_the_family_runs(
    cpu_plugin: Any, runtime: Any, make_twins: Callable[[str], Twins]
) -> None:
    """An engine of OpenVINO and its canaries on a device of OpenVINO, those of jax on any other."""

    def made(runtime: Any, family: str) -> Any:
        spec = SimpleNamespace(dtype="fp32", family=family)
        plan: Any = SimpleNamespace(model="tiny-llama", buckets=(8,), batch_size=1, spec=spec, shape=TIED)
        return reference_buckets.static_bucket_engine(runtime, plan)

    on_jax, engine = made(runtime, "cpu"), made(cpu_plugin, "openvino")
    assert (on_jax.name, engine.name) == ("jax-dense", "openvino-dense")
    assert isinstance(on_jax.canaries, CanaryKernels)
    canaries = engine.canaries
    for kernel in KERNELS:
        canaries.load(kernel)
        before = cpu_plugin.num_process_compiles
        canaries.load(kernel)
        assert canaries.time(kernel) > 0
        assert cpu_plugin.num_process_compiles == before


def test_the_canaries_calculate(cpu_plugin: Any) -> None:
    from pytest_npubench.engines.openvino_dense.canaries import OpenVinoCanaries

    canaries = OpenVinoCanaries(cpu_plugin)
    for kernel, want in (("dispatch", 4.0), ("copy", 6.0)):
        canaries.load(kernel)
        request = canaries._requests[kernel]
        request.get_input_tensor(0).data[...] = 3
        canaries.time(kernel)
        np.testing.assert_allclose(request.get_output_tensor(0).data.reshape(-1)[:8], want, rtol=1e-5)
    canaries.load("matmul")
    request = canaries._requests["matmul"]
    left = request.get_input_tensor(0).data
    assert len(np.unique(left)) > 1000, "a constant draws too little power"
    canaries.time("matmul")
    product = request.get_output_tensor(0).data.copy()
    left[...], random = np.eye(len(left)), left.copy()
    canaries.time("matmul")
    weight = request.get_output_tensor(0).data
    assert len(np.unique(weight)) > 1000, "a constant draws too little power"
    np.testing.assert_allclose(product, random @ weight, rtol=0.05, atol=0.5)  # of sums around 23
