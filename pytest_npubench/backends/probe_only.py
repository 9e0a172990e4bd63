"""A family whose devices can be found, and for which this version has no engine: its cases skip and say so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pytest_npubench.backends.protocol import Device, Probe, Runtime
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.errors import DeviceUnavailableError


class ProbeOnlyBackend:
    """`find` returns a reason for absence, or an empty string and what was found."""

    def __init__(self, family: str, find: Callable[[float], tuple[str, str]]) -> None:
        self.family = family
        self._find = find

    def probe(self, timeout_s: float) -> Probe:
        reason, found = self._find(timeout_s)
        return Probe(reason=reason or f"found {found}, but this version has no engine that runs on {self.family}")

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        raise DeviceUnavailableError(f"this version has no engine that runs on {self.family}")

    def telemetry(self, devices: Sequence[Device]) -> Telemetry | None:
        """None: what cannot be measured needs no watching."""
        return None
