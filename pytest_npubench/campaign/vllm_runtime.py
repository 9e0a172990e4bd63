"""The runtime of framework "vllm": the devices as they were probed, vLLM's build as the stack below, its compiles.

Nothing is opened here: engines live in processes of their own (engines/vllm/process.py), and a bench starts them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pytest_npubench import backends
from pytest_npubench.backends.protocol import Backend, Device, Stack, class_of
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.engines.vllm.installed import vllm_there, why_not_served
from pytest_npubench.engines.vllm.process import num_late_compiles, vllm_python
from pytest_npubench.errors import DeviceUnavailableError, MeasurementError
from pytest_npubench.measurement import CompileRecord

SETTINGS = ("OMP_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_ATTENTION_BACKEND", "NVIDIA_TF32_OVERRIDE")
"""Of the environment: what changes how fast vLLM's kernels are."""


class VllmRuntime:
    """Devices for vLLM. Raises DeviceUnavailableError where the vLLM that is there does not serve them, or is none."""

    framework = "vllm"

    def __init__(self, backend: Backend, devices: Sequence[Device]) -> None:
        if reason := why_not_served(backend.family):
            raise DeviceUnavailableError(reason)
        self.compiles: list[CompileRecord] = []
        self._there = vllm_there(vllm_python())
        self._backend, self._devices = backend, tuple(devices)

    @property
    def devices(self) -> Sequence[str]:
        """As torch names them."""
        family = self._backend.family
        return [family if family == "cpu" else f"{family}:{device.ordinal}" for device in self._devices]

    @property
    def visible_devices(self) -> str | None:
        """CUDA_VISIBLE_DEVICES with which an engine sees these devices and no others; None where it means nothing."""
        return backends.visible(self._backend, self._devices).get("CUDA_VISIBLE_DEVICES")

    @property
    def num_process_compiles(self) -> int:
        """Compiles after warm-up that the logs of this process' engines tell of; those of a start are no late ones."""
        return num_late_compiles()

    def compile(
        self, name: str, function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = (), out: Any = None
    ) -> Callable[..., Any]:
        """Raises MeasurementError: vLLM compiles for itself, when an engine starts."""
        raise MeasurementError(f"{name}: nothing is compiled beside vLLM")

    def synchronize(self, value: Any) -> None:
        """Raises MeasurementError: what vLLM runs is in another process, which tells its own times."""
        raise MeasurementError("nothing of vLLM's can be waited for from here")

    def stack(self) -> Stack:
        bare: Callable[[Sequence[Device]], Stack] = getattr(self._backend, "bare_stack", class_of)
        settings = [f"{name}={value}" for name in SETTINGS if (value := os.environ.get(name))]
        there = self._there
        return replace(
            bare(self._devices),
            runtime=f"{there.distribution} {there.version}, torch {there.torch or 'unknown'}",
            compiler=", ".join([there.platform, *settings]),
        )

    def close(self) -> None:
        """Nothing is held: a bench ends the engines that it started."""

    def telemetry(self) -> Telemetry | None:
        ask = getattr(self._backend, "telemetry", None)
        telemetry: Telemetry | None = ask(self._devices) if ask is not None else None
        return telemetry
