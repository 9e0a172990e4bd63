"""Intel NPUs and GPUs through OpenVINO, and its CPU plugin where a hardware file asks for that.

OpenVINO ships its plugins even without the device, so it is asked which devices there are, in a process of its own: a
broken driver may crash or hang. NPUs come first, then GPUs, the processors last. An NPU and a GPU are named as OpenVINO
names them (FULL_DEVICE_NAME); the CPU plugin's name ends in "(OpenVINO CPU plugin)", so that a hardware file takes it
only by saying so: match = ['OpenVINO CPU plugin'].
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from pytest_npubench.backends.protocol import Device, Probe, Runtime
from pytest_npubench.backends.telemetry.cpu import CpuTelemetry
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.plain_text import last_line
from pytest_npubench.processes import guarded

FAMILY = "openvino"
CPU_PLUGIN = "(OpenVINO CPU plugin)"
_QUESTION = f"""
import json
from pytest_npubench.backends.{FAMILY}_runtime import present
print(json.dumps(present()))
"""


class OpenVinoBackend:
    """Each device that OpenVINO finds is one device of the family."""

    family = FAMILY

    def probe(self, timeout_s: float) -> Probe:
        if missing := _missing():
            return Probe(reason=missing)
        try:
            answer = guarded.run([sys.executable, "-c", _QUESTION], limit_s=timeout_s)
        except subprocess.TimeoutExpired:
            return _failed(f"openvino did not answer within {timeout_s:g} s (--npubench-probe-timeout)")
        except OSError as error:
            return _failed(f"openvino could not be asked: {error}")
        if answer.returncode:
            return _failed(f"openvino failed: {_ending(answer)}")
        try:
            return _devices(json.loads(last_line(answer.stdout)))
        except (ValueError, TypeError, LookupError):
            return _failed(f"openvino gave no list of devices: {last_line(answer.stdout)}")

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        if missing := _missing():
            raise DeviceUnavailableError(missing)
        from pytest_npubench.backends.openvino_runtime import OpenVinoRuntime

        return OpenVinoRuntime(devices, cache_dir)

    def classes(self, device: Device) -> tuple[str, ...]:
        """Returns the class of one device: OpenVINO's names of GPUs say iGPU or dGPU, the CPU plugin is of no class."""
        if device.name.endswith(CPU_PLUGIN):
            return ()
        return ("gpu",) if "GPU" in device.name else ("npu",)

    def telemetry(self, devices: Sequence[Device]) -> Telemetry | None:
        """Returns the processors' state for the CPU plugin. OpenVINO reports neither clock nor heat of an NPU or a
        GPU."""
        return CpuTelemetry() if all(device.name.endswith(CPU_PLUGIN) for device in devices) else None


def _failed(reason: str) -> Probe:
    return Probe(reason=reason, failed=True)


def _missing() -> str:
    return "" if find_spec("openvino") else "openvino is not installed: pip install pytest-npubench[openvino]"


def _devices(rows: list[Any]) -> Probe:
    if not rows:
        return Probe(reason="openvino found no device: neither an NPU nor a GPU, and no CPU plugin")
    return Probe(
        devices=tuple(
            Device(family=FAMILY, ordinal=ordinal, name=_named(row), uuid=row["uuid"], memory_bytes=row["memory_bytes"])
            for ordinal, row in enumerate(rows)
        )
    )


def _named(row: dict[str, Any]) -> str:
    """Returns the name that a hardware file's `match` is compared with."""
    return f"{row['name']} {CPU_PLUGIN}" if row["id"] == "CPU" else str(row["name"])


def _ending(answer: subprocess.CompletedProcess[str]) -> str:
    """Returns the last words of a process that failed; where a driver crashed it, its signal."""
    if answer.returncode < 0:
        return guarded.ending(answer.returncode)
    return last_line(answer.stderr)


BACKEND = OpenVinoBackend()
