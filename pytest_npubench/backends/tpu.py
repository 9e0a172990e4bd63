"""Google TPUs through jax."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from pytest_npubench.backends.jax_probe import Sought, probe_jax
from pytest_npubench.backends.protocol import Device, Probe, Runtime, Stack, class_of
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.backends.telemetry.tpu import TIMEOUT_S, TpuTelemetry, chip_of, visible_chips
from pytest_npubench.backends.telemetry.vendor_call import PatientTelemetry, VendorCalls
from pytest_npubench.core.entry_points import installed_version

BOUNDS = {1: "1,1,1", 2: "1,2,1", 4: "2,2,1"}
"""The shape that so many chips of a host are to libtpu (TPU_CHIPS_PER_PROCESS_BOUNDS)."""
LIBTPU = VendorCalls("libtpu", 2 * TIMEOUT_S)  # its program has a limit of its own
SOUGHT = Sought(
    family="tpu",
    title="TPU",
    platforms=("tpu",),
    plugin="tpu",
    nodes=("/dev/accel0",),
    pci_vendor="0x1ae0",  # Google's, whose network cards are on the same bus
    pci_devices=frozenset({"0x0027", "0x0056", "0x005e", "0x0062", "0x0063", "0x006f", "0x0076"}),  # v3 to 7x
)
TWO_DEVICES_A_CHIP = re.compile(r"TPU (v2|v3)\b|TPU ?7x|TPU v7x", re.IGNORECASE)


class TpuBackend:
    family = "tpu"

    def probe(self, timeout_s: float) -> Probe:
        """Looks for TPUs; a device's uuid is its id without TPU_VISIBLE_CHIPS, which may hide others."""
        probe = probe_jax(SOUGHT, timeout_s)
        chips = visible_chips()
        if chips is None:
            return probe
        return dataclasses.replace(probe, devices=tuple(_identified(device, chips) for device in probe.devices))

    def visible(self, devices: Sequence[Device]) -> Mapping[str, str]:
        """Hides other chips where a chip is a device; in other generations a device is half a chip."""
        if len(devices) not in BOUNDS or TWO_DEVICES_A_CHIP.search(devices[0].name):
            return {}
        if any(device.unidentified for device in devices):
            return {}
        return {
            "TPU_VISIBLE_CHIPS": ",".join(str(chip_of(device)) for device in devices),
            "TPU_CHIPS_PER_PROCESS_BOUNDS": BOUNDS[len(devices)],
            "TPU_PROCESS_BOUNDS": "1,1,1",
        }

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        from pytest_npubench.backends.jax_runtime import JaxRuntime

        class TpuRuntime(JaxRuntime):
            def stack(self) -> Stack:
                return dataclasses.replace(super().stack(), driver=_libtpu())

            def telemetry(self) -> Telemetry | None:
                return _telemetry(devices)

        return TpuRuntime(self.family, devices, cache_dir)

    def telemetry(self, devices: Sequence[Device]) -> Telemetry | None:
        return _telemetry(devices) if devices else None

    def bare_stack(self, devices: Sequence[Device]) -> Stack:
        return dataclasses.replace(class_of(devices), driver=_libtpu())


def _identified(device: Device, chips: Sequence[int]) -> Device:
    """Returns the device as it is called on the whole host. A campaign's process is shown that chip alone."""
    if TWO_DEVICES_A_CHIP.search(device.name) or device.ordinal >= len(chips):
        unidentified = "TPU_VISIBLE_CHIPS does not tell which half of which chip it is"
        return dataclasses.replace(device, unidentified=unidentified)
    return dataclasses.replace(device, uuid=f"tpu:{chips[device.ordinal]}")


def _telemetry(devices: Sequence[Device]) -> Telemetry | None:
    """Telemetry of the devices; None where their chips are unknown."""
    if any(device.unidentified for device in devices):
        return None
    return PatientTelemetry(LIBTPU, lambda: TpuTelemetry(devices))


def _libtpu() -> str | None:
    """libtpu is driver and compiler in one."""
    versions = ((name, installed_version(name)) for name in ("libtpu", "libtpu-nightly"))
    return next((f"{name} {version}" for name, version in versions if version), None)


BACKEND = TpuBackend()
