"""Devices while they are open: their runtimes, their fingerprints, and letting go of them for another process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pytest_npubench import backends
from pytest_npubench.backends.protocol import Device, Runtime
from pytest_npubench.errors import DeviceUnavailableError, NpubenchError
from pytest_npubench.store.fingerprint import DeviceFacts, Fingerprint, FingerprintKey, collect

Devices = tuple[Device, ...]


class OpenDevices:
    """Groups of devices, each opened on first use. `on_fingerprint` puts one on record and returns its digest."""

    def __init__(self, root: Path, cache: Path | None, on_fingerprint: Callable[[Fingerprint], str]) -> None:
        self._root = root
        self._cache = str(cache) if cache else None
        self._on_fingerprint = on_fingerprint
        self._runtimes: dict[Devices, Runtime] = {}
        self._fingerprints: dict[Devices, tuple[Fingerprint, str]] = {}

    def runtime(self, devices: Devices) -> Runtime:
        """Raises DeviceUnavailableError where the device does not open."""
        if devices not in self._runtimes:
            family = backends.backend(devices[0].family)
            try:
                self._runtimes[devices] = family.open(devices, self._cache)
            except NpubenchError:
                raise
            except Exception as error:  # whatever a vendor's runtime raises: a device that does not open is an answer
                names = ", ".join(device.id for device in devices)
                reason = next(iter(str(error).splitlines()), "no message")
                raise DeviceUnavailableError(f"{names} does not open: {type(error).__name__}: {reason}") from error
        return self._runtimes[devices]

    def digest(self, devices: Devices) -> str:
        """The digest of the devices' fingerprint, which is then on record."""
        return self._fingerprint(devices)[1]

    def key(self, devices: Devices) -> FingerprintKey:
        return self._fingerprint(devices)[0].key()

    def release(self) -> None:
        """Close every runtime, so that another process can use the devices; they open again on next use."""
        for runtime in self._runtimes.values():
            if close := getattr(runtime, "close", None):
                close()
        self._runtimes.clear()

    def _fingerprint(self, devices: Devices) -> tuple[Fingerprint, str]:
        if devices not in self._fingerprints:
            stack = self.runtime(devices).stack()
            facts = DeviceFacts(
                family=devices[0].family,
                name=devices[0].name,
                device_class=stack.device_class,
                driver=stack.driver,
                runtime=stack.runtime,
                compiler=stack.compiler,
                power_policy=stack.power_policy,
                firmware=stack.firmware,
                clock_policy=stack.clock_policy,
                # two devices of one name are not one: a resumed run must not take the one's results for the other's
                extra=(*stack.extra, ("devices", ", ".join(device.uuid or device.id for device in devices))),
            )
            fingerprint = collect(facts, self._root)
            self._fingerprints[devices] = fingerprint, self._on_fingerprint(fingerprint)
        return self._fingerprints[devices]
