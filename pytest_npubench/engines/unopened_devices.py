"""The runtime of an engine that runs models by itself: the devices as they were probed. Nothing is opened here."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pytest_npubench.backends.protocol import Backend, Device, Stack, class_of
from pytest_npubench.backends.telemetry.state import Telemetry
from pytest_npubench.core.measurement import CompileRecord
from pytest_npubench.errors import MeasurementError


class UnopenedDevices:
    """Devices for the engine of that title. A derived class says what its stack is."""

    def __init__(self, backend: Backend, devices: Sequence[Device], title: str) -> None:
        self.compiles: list[CompileRecord] = []
        self._backend, self._devices, self._title = backend, tuple(devices), title

    @property
    def devices(self) -> Sequence[str]:
        """The devices by torch's names."""
        family = self._backend.family
        return [family if family == "cpu" else f"{family}:{device.ordinal}" for device in self._devices]

    @property
    def num_process_compiles(self) -> int:
        """0: compiles after the engine's start are not visible here."""
        return 0

    def compile(
        self, name: str, function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = (), out: Any = None
    ) -> Callable[..., Any]:
        """Raises MeasurementError: the engine compiles for itself."""
        raise MeasurementError(f"{name}: nothing is compiled beside {self._title}")

    def synchronize(self, value: Any) -> None:
        """Raises MeasurementError: the engine waits for what it runs, and tells its own times."""
        raise MeasurementError(f"nothing of {self._title}'s can be waited for from here")

    def stack(self) -> Stack:
        """The stack without runtime and compiler."""
        bare: Callable[[Sequence[Device]], Stack] = getattr(self._backend, "bare_stack", class_of)
        return bare(self._devices)

    def close(self) -> None:
        """Nothing to close: a bench ends the engine that it started."""

    def telemetry(self) -> Telemetry | None:
        ask = getattr(self._backend, "telemetry", None)
        telemetry: Telemetry | None = ask(self._devices) if ask is not None else None
        return telemetry


def with_software(stack: Stack, runtime: str, compiler: str | None, variables: Sequence[str]) -> Stack:
    """The stack with runtime and compiler added, and the environment's variables that are set."""
    settings = [f"{name}={value}" for name in variables if (value := os.environ.get(name))]
    return replace(stack, runtime=runtime, compiler=", ".join([*filter(None, [compiler]), *settings]) or None)
