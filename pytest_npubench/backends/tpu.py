"""Google TPUs through jax."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from importlib import metadata

from pytest_npubench.backends.jax_probe import probe_jax
from pytest_npubench.backends.protocol import Device, Probe, Runtime, Stack, class_of
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.backends.telemetry.tpu import TpuTelemetry


class TpuBackend:
    family = "tpu"

    def probe(self, timeout_s: float) -> Probe:
        return probe_jax(self.family, "TPU", ("tpu",), timeout_s)

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        from pytest_npubench.backends.jax_runtime import JaxRuntime

        class TpuRuntime(JaxRuntime):
            def stack(self) -> Stack:
                return dataclasses.replace(super().stack(), driver=_libtpu())

            def telemetry(self) -> Telemetry:
                return TpuTelemetry(devices)

        return TpuRuntime(self.family, devices, cache_dir)

    def telemetry(self, devices: Sequence[Device]) -> Telemetry | None:
        return TpuTelemetry(devices) if devices else None

    def bare_stack(self, devices: Sequence[Device]) -> Stack:
        return dataclasses.replace(class_of(devices), driver=_libtpu())


def _libtpu() -> str | None:
    """libtpu is driver and compiler in one."""
    for name in ("libtpu", "libtpu-nightly"):
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return None


BACKEND = TpuBackend()
