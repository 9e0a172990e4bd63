"""One runtime for torch on cpu and cuda: its devices, how to wait for them, and the stack below.

Nothing is compiled ahead of time here: kernels are the library's, chosen by shape.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_npubench.backends.protocol import Device, Stack
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.core.measurement import CompileRecord
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError

KERNEL_SETTINGS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_BLAS_PREFER_CUBLASLT",
    "PYTORCH_ALLOC_CONF",  # as in expandable_segments:True
    "PYTORCH_CUDA_ALLOC_CONF",  # its name before torch 2.9
)


class TorchRuntime:
    """A group of torch devices. Raises DeviceUnavailableError where torch does not see a device that the probe saw."""

    def __init__(self, family: str, devices: Sequence[Device]) -> None:
        self.compiles: list[CompileRecord] = []
        self.num_process_compiles = 0
        self._family = family
        self._name = devices[0].name
        num_present = torch.cuda.device_count() if family == "cuda" else 1
        if missing := [device.id for device in devices if device.index >= num_present]:
            build = f"torch {torch.__version__} sees {num_present} devices of {family}"
            raise DeviceUnavailableError(f"{', '.join(missing)}: {build}")
        self._devices = [f"{family}:{device.index}" if family != "cpu" else "cpu" for device in devices]

    @property
    def devices(self) -> Sequence[Any]:
        """torch's own names of them."""
        return self._devices

    def compile(
        self, name: str, function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = (), out: Any = None
    ) -> Callable[..., Any]:
        """Raises MeasurementError: ask the JAX runtime."""
        raise MeasurementError(f"{name}: torch compiles nothing ahead of time here")

    def synchronize(self, value: Any) -> None:
        """Wait for everything that was launched."""
        if self._family == "cuda":
            for device in self._devices:
                torch.cuda.synchronize(device)

    def stack(self) -> Stack:
        settings = [f"{name}={value}" for name in KERNEL_SETTINGS if (value := os.environ.get(name))]
        return Stack(
            device_class=self._name if len(self._devices) == 1 else f"{len(self._devices)} x {self._name}",
            driver=None,
            runtime=f"torch {torch.__version__}",
            compiler=", ".join([*self._kernels(), *settings]),
        )

    def close(self) -> None:
        """Give the memory that nothing uses back to the device."""
        gc.collect()
        if self._family == "cuda":
            torch.cuda.empty_cache()

    def telemetry(self) -> Telemetry | None:
        """No telemetry; runtimes of families with telemetry override this."""
        return None

    def _kernels(self) -> list[str]:
        """Returns the settings that decide which kernels run."""
        if self._family == "cuda":
            from torch.nn import attention  # takes two seconds, which a CPU need not wait

            active = getattr(attention, "current_flash_attention_impl", lambda: None)()
            flash = [f"FlashAttention {active}"] if active else []
            return [f"CUDA {torch.version.cuda}", f"cuDNN {torch.backends.cudnn.version()}", *flash]
        return [torch.backends.cpu.get_cpu_capability(), f"{torch.get_num_threads()} threads"]
