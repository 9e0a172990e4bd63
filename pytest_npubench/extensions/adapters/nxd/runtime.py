"""The devices that NxD Inference runs on: its own stack is the one above them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from pytest_npubench.backends.protocol import Backend, Device, Stack
from pytest_npubench.engines.unopened_devices import UnopenedDevices, with_software

RUNTIME = ("neuronx-distributed-inference", "neuronx-distributed", "torch-neuronx", "libneuronxla")
COMPILER = "neuronx-cc"
SETTINGS = ("NEURON_CC_FLAGS", "NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_EXEC_TIMEOUT", "XLA_FLAGS")
"""Of the environment: what changes what is compiled, and how it runs."""


class NeuronRuntime(UnopenedDevices):
    """NeuronCores for NxD Inference, which opens them itself when a model is loaded."""

    def __init__(self, backend: Backend, devices: Sequence[Device]) -> None:
        super().__init__(backend, devices, "NxD Inference")

    def stack(self) -> Stack:
        parts = [f"{name} {_version(name)}" for name in RUNTIME if _version(name)]
        return with_software(super().stack(), ", ".join(parts) or RUNTIME[0], _compiler(), SETTINGS)


def _compiler() -> str | None:
    version = _version(COMPILER)
    return None if version is None else f"{COMPILER} {version}"


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
