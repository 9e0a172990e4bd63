"""The host's processors through XLA: a real device, with one binary per shape like any other."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Sequence
from pathlib import Path

from pytest_npubench.backends.jax_probe import jax_missing
from pytest_npubench.backends.protocol import Device, Probe, Runtime, Stack


class CpuBackend:
    """One device: the processors that this process may use."""

    family = "cpu"

    def probe(self, timeout_s: float) -> Probe:
        """Needs no process of its own: the host is always there, jax may not be."""
        if missing := jax_missing(self.family):
            return Probe(reason=missing)
        return Probe(devices=(Device(family=self.family, ordinal=0, name=processor_name()),))

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        from pytest_npubench.backends.jax_runtime import JaxRuntime

        class HostRuntime(JaxRuntime):
            def stack(self) -> Stack:
                return dataclasses.replace(super().stack(), power_policy=_governor())

        return HostRuntime(self.family, devices, cache_dir)


def processor_name() -> str:
    """The model name the kernel gives, else the architecture."""
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _governor() -> str | None:
    return _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").strip() or None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


BACKEND = CpuBackend()
