"""TPUs: memory use and duty cycle by libtpu's own monitoring, or by the command line `tpu-info`; nothing else is told.

A TPU belongs to one process at a time, so sharing needs no watching while we run; `tpu-info` names the holder, which a
probe shows. Inside a process that runs jax the library is asked; elsewhere the command, which takes a second.

    TPU Chips                                            (tpu-info, documented output)
    │ /dev/vfio/0   TPU v6e chip  1        1052   │
    TPU Runtime Utilization
    │ 8       18.45 GiB / 31.25 GiB        100.00% │
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from shutil import which
from typing import Any

from pytest_npubench.backends.protocol import Device
from pytest_npubench.backends.telemetry import linux
from pytest_npubench.backends.telemetry.state import DeviceState
from pytest_npubench.processes import guarded

TIMEOUT_S = 10.0
_CHIP = re.compile(r"(/dev/\S+)\s.*?\s(\d+)[\s│]+(\d+|None)\s*│")  # versions differ in the lines between columns
_USE = re.compile(r"([\d.]+) GiB / [\d.]+ GiB[\s│]+([\d.]+)\s*%")


def visible_chips() -> list[int] | None:
    """Returns the numbers on this host of the chips that libtpu shows this process, in order; None where it shows
    all."""
    names = os.environ.get("TPU_VISIBLE_CHIPS") or os.environ.get("TPU_VISIBLE_DEVICES") or ""
    numbers = [name.strip() for name in names.split(",") if name.strip()]
    return [int(number) for number in numbers] if numbers and all(map(str.isdecimal, numbers)) else None


def chip_of(device: Device) -> int:
    """Returns the chip's number on this host. Raises ValueError where it is unknown."""
    if device.unidentified:
        raise ValueError(f"{device.id}: {device.unidentified}")
    return device.ordinal if device.uuid is None else int(device.uuid.removeprefix("tpu:"))


class TpuTelemetry:
    """The chips of a group. A lost TPU is not told by either source: it shows as an error of jax."""

    def __init__(self, devices: Sequence[Device], timeout_s: float = TIMEOUT_S) -> None:
        """Raises ValueError for a device whose chip is unknown."""
        chips = visible_chips()
        self._chips = [chip_of(device) for device in devices]
        self._places = [device.index for device in devices] if chips else self._chips
        self._num_visible = len(chips) if chips else None
        self._timeout_s = timeout_s

    def read(self) -> DeviceState:
        """Raises subprocess.TimeoutExpired where tpu-info does not end."""
        if "jax" in sys.modules:  # jax has loaded libtpu; to load it here could take the chip from another process
            return DeviceState.now(**self._by_library())
        return DeviceState.now(**self._by_command())

    def close(self) -> None:
        """Nothing is held open."""

    def _by_library(self) -> dict[str, Any]:
        try:
            monitoring: Any = import_module("libtpu.sdk").tpumonitoring
            memory = monitoring.get_metric("hbm_capacity_usage").data()
            duty = monitoring.get_metric("duty_cycle_pct").data()
            places = self._places if len(memory) == self._num_visible else self._chips
            return _of_group(places, [float(value) for value in memory], [float(value) / 100 for value in duty])
        except Exception:  # noqa: BLE001 - whatever a vendor's library raises: it does not tell
            return {}

    def _by_command(self) -> dict[str, Any]:
        if not which("tpu-info"):
            return {}
        try:
            answer = guarded.run(["tpu-info"], limit_s=self._timeout_s)
        except OSError:
            return {}
        rows = _USE.findall(answer.stdout)
        memory = [float(gibibytes) * 2**30 for gibibytes, _ in rows]
        duty = [float(percent) / 100 for _, percent in rows]
        return _of_group(self._chips, memory, duty) | self._holders(_CHIP.findall(answer.stdout))

    def _holders(self, chips: Sequence[tuple[str, str, str]]) -> dict[str, Any]:
        """Returns the processes that hold our chips; a chip without a holder has no number in its last column."""
        if not chips:
            return {}
        holders = [chips[chip][2] for chip in self._chips if chip < len(chips)]
        others = sorted({int(pid) for pid in holders if pid.isdigit()} - linux.own_processes())
        return {"num_other_processes": len(others), "other_processes": tuple(map(linux.process_name, others))}


def _of_group(places: Sequence[int], memory: Sequence[float], duty: Sequence[float]) -> dict[str, Any]:
    """Returns the chips by their places in the list; nothing where it is shorter than our group needs."""
    if max(places) >= min(len(memory), len(duty)):
        return {}
    return {
        "memory_used_bytes": sum(memory[place] for place in places),
        "duty_cycle": min(duty[place] for place in places),
    }
