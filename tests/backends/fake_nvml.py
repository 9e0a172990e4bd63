"""A FAKE of the module pynvml: GPUs whose answers a test sets. What is not set is "not supported", as NVML says it.

It stands in for hardware that is not there; nothing that comes out of it is a measurement.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED, NOT_FOUND, IS_LOST, RESET_REQUIRED = 3, 6, 15, 16  # nvmlReturn_t
UNINITIALIZED, DRIVER_NOT_LOADED, UNKNOWN = 1, 9, 999


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__({NOT_SUPPORTED: "Not Supported", IS_LOST: "GPU is lost"}.get(value, f"code {value}"))
        self.value = value


# a GPU at work, as a real one would tell it: MHz, mW, mJ, nanoseconds
WORKING: dict[str, Any] = {
    "ClockInfo": lambda kind: (1755, 1740, 2619)[kind],
    "MaxClockInfo": lambda kind: (1980, 1980, 2619)[kind],
    "Temperature": 61,
    "PowerUsage": 612_345,
    "EnforcedPowerLimit": 700_000,
    "PowerManagementDefaultLimit": 700_000,
    "MemoryInfo": SimpleNamespace(used=3 * 2**30),
    "CurrentClocksEventReasons": 0x4,
    "ViolationStatus": lambda policy: SimpleNamespace(referenceTime=1, violationTime=(2_500_000_000, 0)[policy]),
    "TotalEnergyConsumption": 123_456,
    "ComputeRunningProcesses": [],
    "EccMode": [1, 1],
    "MigMode": [0, 0],
    "VbiosVersion": "96.00.5E.00.01",
    "ApplicationsClock": lambda kind: (1980, 1980, 2619)[kind],
}


class FakeNvml:
    """`answers` maps nvmlDeviceGet... names to values, functions of the arguments, or exceptions. by_uuid holds what a
    GPU answers differently; where it holds any GPU, no other is there."""

    NVML_ERROR_GPU_IS_LOST = IS_LOST
    NVML_ERROR_RESET_REQUIRED = RESET_REQUIRED
    NVMLError = NVMLError

    def __init__(self, **answers: Any) -> None:
        self.answers = {**WORKING, **answers}
        self.missing: set[str] = set()
        self.num_open = 0
        self.handles: list[Any] = []
        self.by_uuid: dict[str, dict[str, Any]] = {}

    def nvmlInit(self) -> None:
        self.num_open += 1

    def nvmlShutdown(self) -> None:
        self.num_open -= 1

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"570.86.15"

    def __getattr__(self, name: str) -> Any:
        short = name.removeprefix("nvmlDeviceGet")
        if short == name or short in self.missing:
            raise AttributeError(name)
        if short.startswith("HandleBy"):
            return lambda which: self._handle(short, which)
        return lambda handle, *arguments: self._answer(short, handle, arguments)

    def _handle(self, name: str, which: Any) -> Any:
        self.handles.append((name, which))
        if self.by_uuid and which not in self.by_uuid:
            raise NVMLError(NOT_FOUND)
        return which

    def _answer(self, name: str, handle: Any, arguments: tuple[Any, ...]) -> Any:
        answers = self.answers | self.by_uuid.get(handle, {})
        if name not in answers:
            raise NVMLError(NOT_SUPPORTED)
        value = answers[name]
        if isinstance(value, Exception):
            raise value
        return value(*arguments) if callable(value) else value
