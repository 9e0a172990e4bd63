"""NVIDIA GPUs through jax; driver, UUIDs, modes and state through nvidia-ml-py where it is installed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench.backends.jax_probe import probe_jax
from pytest_npubench.backends.protocol import Device, Probe, Runtime, Stack, class_of
from pytest_npubench.backends.telemetry.nvidia import NvidiaTelemetry, text
from pytest_npubench.backends.telemetry.state import Telemetry


class CudaBackend:
    family = "cuda"

    def probe(self, timeout_s: float) -> Probe:
        probe = probe_jax(self.family, "NVIDIA GPU", ("gpu", "cuda"), timeout_s)
        uuids = _nvml(_uuids) or ()
        if len(uuids) != len(probe.devices):  # CUDA_VISIBLE_DEVICES hides some: NVML's order no longer tells which
            return probe
        devices = (dataclasses.replace(device, uuid=uuid) for device, uuid in zip(probe.devices, uuids, strict=True))
        return dataclasses.replace(probe, devices=tuple(devices))

    def visible(self, devices: Sequence[Device]) -> Mapping[str, str]:
        """By the names that hide others already, else by CUDA's own numbers, which are the probe's."""
        here = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        names = [name.strip() for name in here.split(",")] if here else []
        chosen = [names[one.ordinal] if one.ordinal < len(names) else str(one.ordinal) for one in devices]
        return {"CUDA_VISIBLE_DEVICES": ",".join(chosen)}

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        from pytest_npubench.backends.jax_runtime import JaxRuntime

        class CudaRuntime(JaxRuntime):
            def stack(self) -> Stack:
                return _with_facts(super().stack(), devices)

            def telemetry(self) -> Telemetry | None:
                return _telemetry(devices)

        return CudaRuntime(self.family, devices, cache_dir)

    def open_torch(self, devices: Sequence[Device]) -> Runtime:
        from pytest_npubench.backends.torch_runtime import TorchRuntime

        class CudaRuntime(TorchRuntime):
            def stack(self) -> Stack:
                return _with_facts(super().stack(), devices)

            def telemetry(self) -> Telemetry | None:
                return _telemetry(devices)

        return CudaRuntime(self.family, devices)

    def telemetry(self, devices: Sequence[Device]) -> Telemetry | None:
        return _telemetry(devices) if devices else None

    def bare_stack(self, devices: Sequence[Device]) -> Stack:
        return _with_facts(class_of(devices), devices)


def _with_facts(stack: Stack, devices: Sequence[Device]) -> Stack:
    """ECC and MIG go into the class: they change bandwidth, memory and size of what runs under one model's name."""
    stack = dataclasses.replace(stack, driver=_nvml(lambda nvml: text(nvml.nvmlSystemGetDriverVersion())))
    telemetry = _telemetry(devices)
    if telemetry is None:
        return stack
    try:
        gpu = telemetry.first
        return dataclasses.replace(
            stack,
            device_class=", ".join((stack.device_class, *gpu.modes())),
            power_policy=gpu.power_policy(),
            firmware=gpu.firmware(),
            clock_policy=gpu.clock_policy(),
        )
    finally:
        telemetry.close()


def _telemetry(devices: Sequence[Device]) -> NvidiaTelemetry | None:
    """None where NVML is not installed, does not start, or does not know these devices."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        return NvidiaTelemetry(pynvml, devices)
    except pynvml.NVMLError:
        return None


def _nvml(question: Any) -> Any:
    """Ask NVML; None where it is not installed or does not know."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        try:
            return question(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return None


def _uuids(nvml: Any) -> tuple[str, ...]:
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    return tuple(text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles)


BACKEND = CudaBackend()
