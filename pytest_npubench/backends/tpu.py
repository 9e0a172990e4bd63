"""Google TPUs through jax."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from importlib import metadata

from pytest_npubench.backends.jax_probe import probe_jax
from pytest_npubench.backends.protocol import Device, Probe, Runtime, Stack, class_of
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.backends.telemetry.tpu import TpuTelemetry

BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1"}
"""The shape that so many chips of a host are to libtpu (TPU_CHIPS_PER_PROCESS_BOUNDS)."""
TWO_DEVICES_A_CHIP = re.compile(r"TPU (v2|v3)\b|TPU ?7x|TPU v7x", re.IGNORECASE)


class TpuBackend:
    family = "tpu"

    def probe(self, timeout_s: float) -> Probe:
        return probe_jax(self.family, "TPU", ("tpu",), timeout_s)

    def visible(self, devices: Sequence[Device]) -> Mapping[str, str]:
        """Of chips that are one device each; the other generations' devices are halves of chips, and stay in sight."""
        if len(devices) not in BOUNDS or TWO_DEVICES_A_CHIP.search(devices[0].name):
            return {}
        return {
            "TPU_VISIBLE_CHIPS": ",".join(str(device.ordinal) for device in devices),
            "TPU_CHIPS_PER_PROCESS_BOUNDS": BOUNDS[len(devices)],
            "TPU_PROCESS_BOUNDS": "1,1,1",
        }

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
