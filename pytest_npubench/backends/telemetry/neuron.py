"""AWS Inferentia and Trainium: `neuron-ls` for devices and their processes, one report of `neuron-monitor` for use.

Neither tells clocks, heat or power. `neuron-monitor` writes a JSON report a line for ever; we start it with a
configuration of our own, take the first line and end it. neuron-ls' JSON is `--json-output` up to Neuron 2.33 and
`--output-format json` from 2.34 on (announced by AWS), there with the devices inside an object.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Any

from pytest_npubench.backends.protocol import Device
from pytest_npubench.backends.telemetry import linux
from pytest_npubench.backends.telemetry.state import DeviceState
from pytest_npubench.core.clock import monotonic
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.processes import guarded

TIMEOUT_S = 10.0
MAX_BYTES = 2**24
"""A report is kilobytes: what is longer is none."""
LIST_COMMANDS = (("neuron-ls", "--json-output"), ("neuron-ls", "--output-format", "json"))
MONITOR_CONFIG = {
    "period": "1s",
    "neuron_runtimes": [{"tag_filter": ".*", "metrics": [{"type": "neuroncore_counters"}, {"type": "memory_used"}]}],
    "system_metrics": [{"type": "neuron_hw_counters"}],
}


class NeuronTelemetry:
    """The cores of a group, all of the host where none is named."""

    def __init__(self, devices: Sequence[Device], timeout_s: float = TIMEOUT_S) -> None:
        self._wanted = {device.ordinal: device for device in devices}
        self._timeout_s = timeout_s

    def read(self) -> DeviceState:
        """Takes seconds: two programs are run.

        Raises DeviceUnavailableError where neuron-ls lists a device no more, subprocess.TimeoutExpired where it hangs.
        """
        return DeviceState.now(**self._processes(), **self._use())

    def close(self) -> None:
        """Nothing is held open."""

    def _processes(self) -> dict[str, Any]:
        try:
            listed = list_devices(self._timeout_s)
        except (OSError, ValueError):
            return {}
        cores = chips_of_cores(listed)
        if missing := [device.id for ordinal, device in self._wanted.items() if ordinal not in cores]:
            raise DeviceUnavailableError(
                f"{', '.join(missing)}: neuron-ls lists {len(listed)} devices and not this one"
            )
        ours = linux.own_processes()
        wanted = [cores[ordinal] for ordinal in self._wanted or cores]
        entries = {entry.get("neuron_device"): entry for entry in wanted}.values()
        running = [process for entry in entries for process in entry.get("neuron_processes") or ()]
        others = {process["pid"]: _name(process) for process in running if process.get("pid") not in (None, *ours)}
        return {"num_other_processes": len(others), "other_processes": tuple(others.values())}

    def _use(self) -> dict[str, Any]:
        """Mean utilisation of the cores in use and the device memory of all runtimes: no report tells them apart."""
        report = monitor_report(self._timeout_s) or {}
        parts = [entry.get("report") or {} for entry in report.get("neuron_runtime_data") or ()]
        cores = [core for part in parts for core in _inside(part, "neuroncore_counters", "neuroncores_in_use").values()]
        use = [core["neuroncore_utilization"] / 100 for core in cores if "neuroncore_utilization" in core]
        memory = [_inside(part, "memory_used", "neuron_runtime_used_bytes").get("neuron_device") for part in parts]
        used_bytes = [value for value in memory if value is not None]
        return {
            "duty_cycle": sum(use) / len(use) if use else None,
            "memory_used_bytes": float(sum(used_bytes)) if used_bytes else None,
        }


def list_devices(timeout_s: float) -> list[Mapping[str, Any]]:
    """What neuron-ls lists. Raises OSError, subprocess.TimeoutExpired, or ValueError where it is no JSON we know."""
    problem = ""
    for command in LIST_COMMANDS:
        answer = guarded.run(command, limit_s=timeout_s)
        try:
            return _devices(json.loads(answer.stdout))
        except ValueError as error:
            problem = problem or answer.stderr.strip() or f"{error} in what it printed"
    raise ValueError(problem.splitlines()[-1])


def chips_of_cores(listed: Iterable[Mapping[str, Any]]) -> dict[int, Mapping[str, Any]]:
    """Maps the number of a NeuronCore, as the runtime counts cores, to its chip's entry. nc_count counts logical cores.

    Worked example: chips 0 and 1 with two cores each: cores 0 and 1 are the first one's, 2 and 3 the second one's.
    """
    chips: dict[int, Mapping[str, Any]] = {}
    for entry in listed:
        count, chip = int(entry.get("nc_count") or 1), int(entry.get("neuron_device") or 0)
        chips |= dict.fromkeys(entry.get("neuroncore_ids") or range(chip * count, (chip + 1) * count), entry)
    return chips


def monitor_report(timeout_s: float) -> Mapping[str, Any] | None:
    """Returns the first report of neuron-monitor; None where it is missing, late or no JSON."""
    if not which("neuron-monitor"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "monitor.json"
        config.write_text(json.dumps(MONITOR_CONFIG), encoding="utf-8")
        try:
            monitor = guarded.Guarded(
                ["neuron-monitor", "-c", str(config)],
                limit_s=timeout_s,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return None
        try:
            report = json.loads(_first_line(monitor.process, timeout_s))
        except ValueError:
            return None
        finally:
            monitor.end()
    return report if isinstance(report, Mapping) else None


def _first_line(process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
    assert process.stdout is not None  # it was asked for
    ends_s, line = monotonic() + timeout_s, b""
    while b"\n" not in line and len(line) < MAX_BYTES and (left_s := ends_s - monotonic()) > 0:
        if select.select([process.stdout], [], [], left_s)[0]:
            if not (part := os.read(process.stdout.fileno(), 65536)):
                break
            line += part
    return line.partition(b"\n")[0]


def _devices(document: Any) -> list[Mapping[str, Any]]:
    """Returns the list itself, or the list inside an object of the newer format."""
    candidates = [document, *document.values()] if isinstance(document, Mapping) else [document]
    for value in candidates:
        if isinstance(value, list) and all(isinstance(entry, Mapping) for entry in value):
            return value
    raise ValueError(f"no list of devices in {type(document).__name__} of neuron-ls")


def _inside(mapping: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    for name in names:
        mapping = mapping.get(name) or {}
    return mapping


def _name(process: Mapping[str, Any]) -> str:
    words = str(process.get("command") or "").split()
    return f"pid {process['pid']} {Path(words[0]).name}" if words else f"pid {process['pid']}"
