"""The devices that vLLM serves: vLLM's build is the stack above them, its compiles are told by its logs.

Nothing is opened here: engines live in processes of their own (process.py), and a bench starts them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench import backends
from pytest_npubench.backends.cuda import ALLOCATOR_SETTINGS, DRIVER_SETTINGS
from pytest_npubench.backends.protocol import Backend, Device, Stack
from pytest_npubench.engines.unopened_devices import UnopenedDevices, with_software
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.extensions.vllm.installed import vllm_there, why_not_served
from pytest_npubench.extensions.vllm.process import num_late_compiles, vllm_python

SETTINGS = (
    "OMP_NUM_THREADS",
    "VLLM_CPU_OMP_THREADS_BIND",
    "VLLM_ATTENTION_BACKEND",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    *ALLOCATOR_SETTINGS,
    *DRIVER_SETTINGS,
)
"""Of the environment: what changes how fast vLLM's kernels are, or the engine that launches them."""


class VllmRuntime(UnopenedDevices):
    """Devices for vLLM. Raises DeviceUnavailableError where the vLLM that is there does not serve them, or is none."""

    def __init__(self, backend: Backend, devices: Sequence[Device]) -> None:
        if reason := why_not_served(backend.family):
            raise DeviceUnavailableError(reason)
        super().__init__(backend, devices, "vLLM")
        self._there = vllm_there(vllm_python())

    @property
    def visible_devices(self) -> str | None:
        """CUDA_VISIBLE_DEVICES with which an engine sees these devices and no others; None where it means nothing."""
        return backends.visible(self._backend, self._devices).get("CUDA_VISIBLE_DEVICES")

    @property
    def num_process_compiles(self) -> int:
        """Compiles after warm-up in the logs of this process' engines; compiles of a start are not late."""
        return num_late_compiles()

    def stack(self) -> Stack:
        there = self._there
        runtime = f"{there.distribution} {there.version}, torch {there.torch or 'unknown'}"
        return with_software(super().stack(), runtime, there.platform, SETTINGS)
