"""AWS Inferentia and Trainium, found by `neuron-ls`."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from shutil import which

from pytest_npubench.backends.probe_only import ProbeOnlyBackend
from pytest_npubench.backends.protocol import Device
from pytest_npubench.backends.telemetry.neuron import TIMEOUT_S, NeuronTelemetry, list_devices
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.backends.telemetry.vendor_call import PatientTelemetry, VendorCalls

NEURON = VendorCalls("neuron-ls", 4 * TIMEOUT_S)  # its programs have limits of their own


class NeuronBackend(ProbeOnlyBackend):
    """Its devices can be found and watched, not yet measured."""

    def telemetry(self, devices: Sequence[Device]) -> Telemetry | None:
        """The state of these devices, of all where none is named; None without the vendor's tools."""
        return PatientTelemetry(NEURON, lambda: NeuronTelemetry(devices)) if which("neuron-ls") else None


def _find(timeout_s: float) -> tuple[str, str]:
    if not which("neuron-ls"):
        return "no Neuron device: neuron-ls is not on the PATH (install aws-neuronx-tools)", ""
    try:
        chips = list_devices(timeout_s)
    except (subprocess.TimeoutExpired, OSError, ValueError) as error:
        return f"no Neuron device: neuron-ls failed: {error}", ""
    if not chips:
        return "no Neuron device: neuron-ls lists none (is the aws-neuronx-dkms driver loaded?)", ""
    return "", f"{len(chips)} Neuron devices"


BACKEND = NeuronBackend("neuron", _find)
