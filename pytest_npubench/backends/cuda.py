"""NVIDIA GPUs through jax; driver, UUIDs and power limit through nvidia-ml-py where it is installed."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from pytest_npubench.backends.jax_probe import probe_jax
from pytest_npubench.backends.protocol import Device, Probe, Runtime, Stack


class CudaBackend:
    family = "cuda"

    def probe(self, timeout_s: float) -> Probe:
        probe = probe_jax(self.family, "NVIDIA GPU", ("gpu", "cuda"), timeout_s)
        uuids = _nvml(_uuids) or ()
        if len(uuids) != len(probe.devices):  # CUDA_VISIBLE_DEVICES hides some: NVML's order no longer tells which
            return probe
        devices = (dataclasses.replace(device, uuid=uuid) for device, uuid in zip(probe.devices, uuids, strict=True))
        return dataclasses.replace(probe, devices=tuple(devices))

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        from pytest_npubench.backends.jax_runtime import JaxRuntime

        class CudaRuntime(JaxRuntime):
            def stack(self) -> Stack:
                driver = _nvml(lambda nvml: _text(nvml.nvmlSystemGetDriverVersion()))
                ordinal = devices[0].ordinal
                return dataclasses.replace(
                    super().stack(), driver=driver, power_policy=_nvml(lambda nvml: _power_limit(nvml, ordinal))
                )

        return CudaRuntime(self.family, devices, cache_dir)


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
    return tuple(_text(nvml.nvmlDeviceGetUUID(handle)) for handle in handles)


def _power_limit(nvml: Any, ordinal: int) -> str:
    milliwatts = nvml.nvmlDeviceGetEnforcedPowerLimit(nvml.nvmlDeviceGetHandleByIndex(ordinal))
    return f"{milliwatts / 1000:g} W"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


BACKEND = CudaBackend()
