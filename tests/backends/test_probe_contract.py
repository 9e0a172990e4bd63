"""What every family's probe promises, on whatever machine this runs: devices or a reason, never an exception."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pytest_npubench.backends import backend
from pytest_npubench.core.hardware import FAMILIES
from pytest_npubench.errors import DeviceUnavailableError

every_family = pytest.mark.parametrize("family", FAMILIES)


@every_family
def test_a_probe_finds_devices_or_says_why_not(family: str) -> None:
    probe = backend(family).probe(timeout_s=60)
    assert bool(probe.devices) != bool(probe.reason), probe
    assert [device.id for device in probe.devices] == [f"{family}:{ordinal}" for ordinal in range(len(probe.devices))]
    assert all(device.name for device in probe.devices)


@every_family
def test_a_probe_that_gets_no_time_does_not_raise(family: str) -> None:
    """Real processes, killed after a hundredth of a second: less than jax needs to start."""
    probe = backend(family).probe(timeout_s=0.01)
    assert bool(probe.devices) != bool(probe.reason), probe


@every_family
def test_a_backend_is_of_its_family(family: str) -> None:
    assert backend(family).family == family


def test_the_host_is_always_there() -> None:
    (device,) = backend("cpu").probe(timeout_s=60).devices
    assert (device.id, device.uuid) == ("cpu:0", None)


def test_what_compiles_for_no_family_says_so() -> None:
    with pytest.raises(DeviceUnavailableError, match="nothing here compiles for neuron; want an engine that does"):
        backend("neuron").open((), None)


PROBE_ALL = """
import sys
from pytest_npubench.backends import backend
from pytest_npubench.core.hardware import FAMILIES
for family in FAMILIES:
    backend(family).probe(60)
print(*sorted({"jax", "jaxlib", "openvino", "qai_hub"} & sys.modules.keys()))
"""


def test_probing_imports_no_vendor_library() -> None:
    """Importing jax takes a second, and in a process that has it a TPU may be held for good."""
    child = subprocess.run([sys.executable, "-c", PROBE_ALL], capture_output=True, text=True, timeout=240, check=False)
    assert (child.returncode, child.stdout.strip()) == (0, ""), child.stderr
