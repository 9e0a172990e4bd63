"""Devices that a run waited for in vain: it waits once, and from then on looks whether they are free.

A run of many campaigns and tests would else wait --npubench-lock-timeout for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.lock import device_lock
from pytest_npubench.errors import DeviceBusyError

Devices = tuple[Device, ...]


class BusyDevices:
    """What was told of devices that were in use, by device."""

    def __init__(self) -> None:
        self._told: dict[Devices, DeviceBusyError] = {}

    def note(self, devices: Devices, error: DeviceBusyError) -> None:
        """Another process of this run waited for them in vain."""
        self._told.setdefault(devices, error)

    def check(self, devices: Devices) -> None:
        """Raises the DeviceBusyError that these devices ended with before, where they are in use still."""
        if devices in self._told:
            with self.lock(devices, 0.0):
                pass

    @contextmanager
    def lock(self, devices: Devices, timeout_s: float) -> Iterator[None]:
        """As device_lock; devices that were waited for in vain are waited for no more."""
        with ExitStack() as held:
            try:
                held.enter_context(device_lock(devices, 0.0 if devices in self._told else timeout_s))
            except DeviceBusyError as error:
                self.note(devices, error)
                raise self._told[devices] from None
            self._told.pop(devices, None)
            yield
