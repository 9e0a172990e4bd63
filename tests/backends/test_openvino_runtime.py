"""The runtime on OpenVINO's own CPU plugin: compiles on record, warm from the cache, errors in words.

NPUs and GPUs are FAKES here: a Core that names devices and properties.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_npubench.backends import backend
from pytest_npubench.backends.protocol import Device
from pytest_npubench.backends.telemetry.cpu import CpuTelemetry
from pytest_npubench.core.measurement import CacheState
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError

ov = pytest.importorskip("openvino", reason="openvino is not installed: pip install pytest-npubench[openvino]")
op = pytest.importorskip("openvino.opset13")
openvino_runtime = pytest.importorskip("pytest_npubench.backends.openvino_runtime")

WEIGHT = np.random.default_rng(0).standard_normal((64, 64), np.float32)


@pytest.fixture(scope="module")
def devices() -> tuple[Device, ...]:
    """The CPU plugin, which is found last wherever there are others."""
    probe = backend("openvino").probe(timeout_s=60)
    assert not probe.reason
    assert [device.ordinal for device in probe.devices] == list(range(len(probe.devices)))
    assert probe.devices[-1].name.endswith("(OpenVINO CPU plugin)")
    return probe.devices[-1:]


@pytest.fixture
def runtime(devices: tuple[Device, ...]) -> Any:
    return backend("openvino").open(devices, None)


def product(rows: int) -> Any:
    x = op.parameter([rows, 64], np.float32)
    return ov.Model([op.matmul(x, op.constant(WEIGHT), False, False)], [x], "product")


def test_a_compile_is_timed_and_counted(runtime: Any) -> None:
    before = runtime.num_process_compiles
    compiled = runtime.compile("product-3", product, 3)
    (record,) = runtime.compiles
    assert (record.name, record.cache) == ("product-3", CacheState.COLD)
    assert record.compile_s > 0
    assert runtime.num_process_compiles == before + 1
    x = np.random.default_rng(1).standard_normal((3, 64), np.float32)
    answer = compiled(x)
    runtime.synchronize(answer)
    # 1e-4: a CPU with bf16 units computes in bf16 by OpenVINO's default, which errs by 1e-2 here
    np.testing.assert_allclose(answer[0], x.astype(np.float64) @ WEIGHT, rtol=0, atol=1e-4)


def test_every_model_of_a_process_is_found_in_the_cache_again(devices: tuple[Device, ...], tmp_path: Path) -> None:
    """OpenVINO's hash covers names that it numbers through the life of a process: without our own names the second
    runtime here would find nothing, as would any other process but for its first model."""
    for cache in (CacheState.COLD, CacheState.WARM):
        runtime = backend("openvino").open(devices, str(tmp_path))
        for rows in (2, 5):
            runtime.compile("product", product, rows)
        assert [record.cache for record in runtime.compiles] == [cache] * 2


def test_without_a_cache_every_compile_is_cold(runtime: Any) -> None:
    for _ in range(2):
        runtime.compile("product", product, 2)
    assert [record.cache for record in runtime.compiles] == [CacheState.COLD] * 2


def test_waiting(runtime: Any) -> None:
    compiled = runtime.compile("product", product, 2)
    requests = [compiled.create_infer_request() for _ in range(2)]
    for request in requests:
        request.start_async()
    runtime.synchronize(requests)
    assert all(request.wait_for(0) for request in requests)
    runtime.synchronize(requests[0].get_output_tensor(0))
    queue = ov.AsyncInferQueue(compiled, 1)
    queue.start_async()
    runtime.synchronize(queue)
    assert queue.is_ready()
    for nothing in (3.0, None, [], np.ones(3)):
        with pytest.raises(MeasurementError, match="so nothing on CPU can be waited for"):
            runtime.synchronize(nothing)


def test_the_stack(runtime: Any, devices: tuple[Device, ...]) -> None:
    stack = runtime.stack()
    assert stack.device_class.startswith(f"{devices[0].name}, ")
    assert stack.runtime == f"openvino {ov.__version__}"
    assert stack.compiler == "CPU plugin, EXECUTION_MODE_HINT=ACCURACY, PERFORMANCE_HINT=LATENCY"
    assert isinstance(runtime.telemetry(), CpuTelemetry)


def test_the_environment_that_changes_kernels_is_in_the_stack(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OV_CPU_MAX_ISA", "avx2")
    assert runtime.stack().compiler.endswith(", OV_CPU_MAX_ISA=avx2")


def test_a_closed_runtime_opens_again(devices: tuple[Device, ...]) -> None:
    runtime = backend("openvino").open(devices, None)
    runtime.close()
    backend("openvino").open(devices, None).compile("product", product, 2)


def test_devices_that_are_not_there(devices: tuple[Device, ...]) -> None:
    (cpu,) = devices
    for gone in (
        Device(family="openvino", ordinal=99, name=cpu.name),
        Device(family="openvino", ordinal=cpu.ordinal, name="Intel(R) AI Boost"),
    ):
        with pytest.raises(DeviceUnavailableError, match=rf"{gone.id}, .* is gone: OpenVINO has the devices .*CPU"):
            backend("openvino").open((gone,), None)
    with pytest.raises(DeviceUnavailableError, match=f"not on {cpu.id}, {cpu.id}: want num_devices = 1"):
        backend("openvino").open((cpu, cpu), None)


class _Unknown(ov.Op):
    """An operation that no plugin has a kernel for."""

    def __init__(self, inputs: Any = None) -> None:
        super().__init__(self, inputs)

    def validate_and_infer_types(self) -> None:
        self.set_output_type(0, self.get_input_element_type(0), self.get_input_partial_shape(0))

    def has_evaluate(self) -> bool:
        return False


def unknown() -> Any:
    x = op.parameter([2, 2], np.float32)
    return ov.Model([_Unknown([x])], [x], "unknown")


def test_an_unsupported_operation(runtime: Any) -> None:
    with pytest.raises(MeasurementError, match=r"^strange: an operation that CPU does not support: .*_Unknown"):
        runtime.compile("strange", unknown)
    assert not runtime.compiles


def test_a_model_that_cannot_be_built(runtime: Any) -> None:
    def clash() -> Any:
        x = op.parameter([2, 3], np.float32)
        return ov.Model([op.matmul(x, op.constant(WEIGHT), False, False)], [x], "clash")

    with pytest.raises(MeasurementError, match=r"^clash: does not compile on CPU: .*3.*64"):
        runtime.compile("clash", clash)


@pytest.mark.parametrize(
    ("words", "start"),
    [
        ("Exception from a.cpp:79:\nstd::bad_alloc\n\n", "out of memory on NPU: std::bad_alloc"),
        (
            "Exception from z.cpp:1:\nL0 pfnAppend result: ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, code 0x70000003",
            "out of memory on NPU: L0",
        ),
        ("[GPU] CL_OUT_OF_HOST_MEMORY", "out of memory on NPU: [GPU]"),
        ("Unsupported operation: foo_1 of type Foo", "an operation that NPU does not support: Unsupported operation"),
        ("Exception from q.cpp:3:\nthe compiler gave up\n", "does not compile on NPU: the compiler gave up"),
    ],
)
def test_why_a_compile_failed(words: str, start: str) -> None:
    assert openvino_runtime.compile_failure(RuntimeError(words), "NPU").startswith(start)


class FakeCore:
    """FAKE: two GPUs and an NPU, as their drivers describe themselves; the second GPU's driver is broken."""

    available_devices = ("CPU", "GPU.0", "GPU.1", "MYRIAD", "NPU")
    properties = {  # noqa: RUF012 - a fake's data
        ("NPU", "FULL_DEVICE_NAME"): "Intel(R) AI Boost",
        ("NPU", "NPU_DRIVER_VERSION"): 1_688_000,
        ("NPU", "NPU_COMPILER_VERSION"): 393_221,
        ("NPU", "NPU_DEVICE_TOTAL_MEM_SIZE"): 2**34,
        ("NPU", "DEVICE_UUID"): "00aa",
        ("NPU", "SUPPORTED_PROPERTIES"): {"PERFORMANCE_HINT": "RW"},
        ("GPU.0", "FULL_DEVICE_NAME"): "Intel(R) Arc(TM) Graphics (iGPU)",
        ("GPU.0", "GPU_DRIVER_VERSION"): "25.18.33578",
        ("GPU.0", "SUPPORTED_PROPERTIES"): {"PERFORMANCE_HINT": "RW", "EXECUTION_MODE_HINT": "RW"},
        ("CPU", "FULL_DEVICE_NAME"): "Intel(R) Core(TM) Ultra 7 155H",
    }

    def get_property(self, device: str, name: str) -> Any:
        if (device, name) not in self.properties:
            raise RuntimeError(f"Unsupported configuration key: {name}")
        return self.properties[device, name]


def test_devices_in_order_and_what_is_unknown_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino_runtime.ov, "Core", FakeCore)
    rows = openvino_runtime.present()
    assert [row["id"] for row in rows] == ["NPU", "GPU.0", "GPU.1", "CPU"]
    assert rows[0] == {"id": "NPU", "name": "Intel(R) AI Boost", "uuid": "00aa", "memory_bytes": 2**34}
    assert rows[2] == {"id": "GPU.1", "name": "GPU.1", "uuid": None, "memory_bytes": None}


def test_driver_and_compiler_versions_are_in_the_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino_runtime.ov, "Core", FakeCore)
    npu = Device(family="openvino", ordinal=0, name="Intel(R) AI Boost")
    stack = backend("openvino").open((npu,), None).stack()
    assert (stack.device_class, stack.driver) == ("Intel(R) AI Boost", "1688000")
    assert stack.compiler == "NPU plugin, PERFORMANCE_HINT=LATENCY, NPU_COMPILER_VERSION=393221"
    gpu = Device(family="openvino", ordinal=1, name="Intel(R) Arc(TM) Graphics (iGPU)")
    stack = backend("openvino").open((gpu,), None).stack()
    assert stack.driver == "25.18.33578"
    assert stack.firmware is None


class TestWhichDevice:
    """On a FAKE of openvino.Core that knows two graphics cards and an NPU without a UUID."""

    IDS = ("NPU", "GPU.0", "GPU.1")

    def get_property(self, device: str, name: str) -> str:
        if (device, name) == ("NPU", "DEVICE_UUID"):
            raise RuntimeError("not supported")
        return {"GPU.0": "00aa", "GPU.1": "00bb"}[device]

    @pytest.mark.parametrize(
        ("ordinal", "uuid", "found"),
        [(0, None, "NPU"), (1, "00aa", "GPU.0"), (1, "00bb", "GPU.1"), (7, "00aa", "GPU.0"), (1, "00cc", None)],
    )
    def test_it_is_the_one_that_the_probe_saw(self, ordinal: int, uuid: str | None, found: str | None) -> None:
        device = Device(family="openvino", ordinal=ordinal, name="Intel", uuid=uuid)
        assert openvino_runtime._openvino_id(self, self.IDS, device) == found
