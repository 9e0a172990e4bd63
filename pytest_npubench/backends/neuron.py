"""AWS Inferentia and Trainium: a device is a NeuronCore, the chips are found by `neuron-ls`.

What runs on them opens them itself (adapters/nxd, vllm of extensions/). The driver names chips and instance under
/sys/devices/virtual/neuron_device (AWS Neuron documentation, Neuron Sysfs User Guide).
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import Any

from pytest_npubench.backends.protocol import Device, Probe, Runtime
from pytest_npubench.backends.telemetry.neuron import TIMEOUT_S, NeuronTelemetry, chips_of_cores, list_devices
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.backends.telemetry.vendor_call import PatientTelemetry, VendorCalls
from pytest_npubench.errors import DeviceUnavailableError

NEURON = VendorCalls("neuron-ls", 4 * TIMEOUT_S)  # its programs have limits of their own
SYSFS = Path("/sys/devices/virtual/neuron_device")
UNNAMED = "AWS Neuron device"


class NeuronBackend:
    family = "neuron"
    no_callables = "nothing here compiles for neuron"

    def probe(self, timeout_s: float) -> Probe:
        if not which("neuron-ls"):
            return Probe(reason="no Neuron device: neuron-ls is not on the PATH (install aws-neuronx-tools)")
        try:
            cores = chips_of_cores(list_devices(timeout_s))
        except (subprocess.TimeoutExpired, OSError, ValueError) as error:
            return Probe(reason=f"no Neuron device: neuron-ls failed: {error}", failed=True)
        if not cores:
            return Probe(reason="no Neuron device: neuron-ls lists none (is the aws-neuronx-dkms driver loaded?)")
        return Probe(devices=tuple(_device(ordinal, chip) for ordinal, chip in cores.items()))

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        """Raises DeviceUnavailableError: no runtime here compiles for them, the engines that serve them do."""
        raise DeviceUnavailableError(f"{self.no_callables}; want an engine that does (--npubench-engine)")

    def visible(self, devices: Sequence[Device]) -> Mapping[str, str]:
        return {"NEURON_RT_VISIBLE_CORES": ",".join(str(device.ordinal) for device in devices)}

    def telemetry(self, devices: Sequence[Device]) -> Telemetry | None:
        """Returns the state of these devices, of all where none is named; None without the vendor's tools."""
        return PatientTelemetry(NEURON, lambda: NeuronTelemetry(devices)) if which("neuron-ls") else None


def _device(ordinal: int, chip: Mapping[str, Any]) -> Device:
    memory = chip.get("memory_size")
    return Device(
        family="neuron",
        ordinal=ordinal,
        name=_name(chip.get("neuron_device")),
        memory_bytes=int(memory) // int(chip.get("nc_count") or 1) if memory else None,
    )


def _name(chip: object) -> str:
    """Returns the driver's name of the chip and the instance's type, such as "Inferentia2, Inf2", without parts that
    are unknown."""
    architecture = SYSFS / f"neuron{chip}" / "info" / "architecture"
    return ", ".join(filter(None, (_read(architecture / name) for name in ("device_name", "instance_type")))) or UNNAMED


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


BACKEND = NeuronBackend()
