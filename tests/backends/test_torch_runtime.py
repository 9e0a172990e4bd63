"""The torch runtime on the host, and what a family without one says."""

import importlib.util
from types import SimpleNamespace

import pytest

from pytest_npubench import backends
from pytest_npubench.backends.protocol import Device
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError

torch = pytest.importorskip("torch", reason="the torch runtime needs torch")

HOST = (Device(family="cpu", ordinal=0, name="A processor"),)


@pytest.fixture(scope="module")
def runtime():
    return backends.open_torch(backends.backend("cpu"), HOST)


def test_the_stack_names_torch_and_what_chooses_its_kernels(runtime, monkeypatch):
    names = ("MKL_NUM_THREADS", "NVIDIA_TF32_OVERRIDE", "TORCH_BLAS_PREFER_CUBLASLT", "PYTORCH_ALLOC_CONF")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    for name in names:
        monkeypatch.setenv(name, "1")
    stack = runtime.stack()
    assert stack.runtime == f"torch {torch.__version__}"
    assert torch.backends.cpu.get_cpu_capability() in stack.compiler
    assert stack.compiler.endswith(", ".join(f"{name}=1" for name in names))
    assert stack.device_class.startswith("A processor, ")
    assert runtime.devices == ["cpu"]
    assert runtime.telemetry() is not None
    runtime.synchronize(None)
    runtime.close()


def test_it_compiles_nothing(runtime):
    with pytest.raises(MeasurementError, match="copy: torch compiles nothing"):
        runtime.compile("copy", lambda x: x, 1)


def test_a_device_that_torch_does_not_see():
    from pytest_npubench.backends.torch_runtime import TorchRuntime

    beyond = Device(family="cuda", ordinal=torch.cuda.device_count(), name="A GPU")
    with pytest.raises(DeviceUnavailableError, match=rf"cuda:{beyond.ordinal}: torch .* sees \d+ devices of cuda"):
        TorchRuntime("cuda", [beyond])


@pytest.mark.parametrize("users", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", ""])
def test_memory_of_a_gpu_grows_in_segments_unless_the_user_set_the_allocator(users, monkeypatch, runtime):
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        monkeypatch.setenv(name, "backend:native" if name == users else "")
    with pytest.raises(DeviceUnavailableError):
        backends.open_torch(backends.backend("cuda"), (Device(family="cuda", ordinal=99, name="A GPU"),))
    setting = f"{users}=backend:native" if users else "PYTORCH_ALLOC_CONF=expandable_segments:True"
    assert runtime.stack().compiler.endswith(setting)
    assert runtime.stack().compiler.count("_CONF") == 1


def test_another_flash_attention_is_part_of_the_stack(monkeypatch, runtime):
    monkeypatch.setattr(runtime, "_family", "cuda")
    monkeypatch.setattr("torch.nn.attention.current_flash_attention_impl", lambda: "FA4", raising=False)
    assert runtime._kernels()[-1] == "FlashAttention FA4"


def test_a_family_without_torch_says_so():
    family = SimpleNamespace(family="tpu")
    with pytest.raises(DeviceUnavailableError, match="tpu:0: no torch runtime for devices of tpu"):
        backends.open_torch(family, (Device(family="tpu", ordinal=0, name="v5e"),))


def test_torch_that_is_not_installed_is_a_reason(monkeypatch):
    assert backends.torch_missing("cpu") == ""
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    assert importlib.util.find_spec is not backends.find_spec
    assert backends.torch_missing("cuda") == "torch is not installed: pip install pytest-npubench[cuda]"
