"""What a device family offers: a probe that harms nothing, and a runtime on devices that are there.

A backend is asked to probe only when a case of its family was selected. A probe never raises: what is missing is its
`reason`, in words a person can act on ("no TPU: jax found platforms cpu").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pytest_npubench.backends.telemetry.state import Telemetry
    from pytest_npubench.core.measurement import CompileRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device as its driver names it. `ordinal` counts within the family; uuid is None where there is none, or where
    nobody could tell it: then `unidentified` says why, and what the device is called elsewhere is not known.

    visible_index is its place among the devices that this process sees, where the environment hides others from it.
    """

    family: str
    ordinal: int
    name: str
    uuid: str | None = None
    memory_bytes: int | None = None
    visible_index: int | None = None
    unidentified: str = ""

    @property
    def index(self) -> int:
        """Returns the device's index for a runtime of this process."""
        return self.ordinal if self.visible_index is None else self.visible_index

    @property
    def id(self) -> str:
        return f"{self.family}:{self.ordinal}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The devices found, or why there are none. It is failed where nobody could look, though what drives them is
    installed: there may be devices, so their cases fail and are not skipped."""

    devices: tuple[Device, ...] = ()
    reason: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """The software between us and the device, as text; None for unknown.

    `compiler` ends in the environment that changes what it compiles, firmware is VBIOS or microcode, power_policy the
    power limit, clock_policy governor or application clocks. device_class tells apart what one model's name does not:
    how many devices, ECC, MIG, cores. `extra` holds facts that are no part of what may be compared.
    """

    device_class: str
    driver: str | None
    runtime: str | None
    compiler: str | None
    power_policy: str | None = None
    firmware: str | None = None
    clock_policy: str | None = None
    extra: tuple[tuple[str, str], ...] = ()


def class_of(devices: Sequence[Device]) -> Stack:
    """Returns a stack of which only the devices' class is known."""
    name = devices[0].name
    device_class = name if len(devices) == 1 else f"{len(devices)} x {name}"
    return Stack(device_class=device_class, driver=None, runtime=None, compiler=None)


class Runtime(Protocol):
    """An open group of devices: compiles for them, waits for them, and counts every compile of the process."""

    compiles: list[CompileRecord]

    @property
    def devices(self) -> Sequence[Any]:
        """Returns the vendor's own device objects."""
        ...

    @property
    def num_process_compiles(self) -> int:
        """Compiles of the whole process so far, ours or not: a rise while measuring is a failure."""
        ...

    def compile(
        self, name: str, function: Callable[..., Any], *arguments: Any, donate: tuple[int, ...] = (), out: Any = None
    ) -> Callable[..., Any]:
        """Compile ahead of time for these shapes and put the time on record."""
        ...

    def synchronize(self, value: Any) -> None:
        """Wait until `value` is there. Raises MeasurementError where it holds nothing that can be waited for."""
        ...

    def stack(self) -> Stack: ...

    def close(self) -> None:
        """Let go of the devices, so that another process can open them. A runtime may do without."""
        ...

    def telemetry(self) -> Telemetry | None:
        """Reads the state of these devices while they are measured; None, or no such method, where nothing tells it.

        Ask `open_telemetry(runtime)`, which knows runtimes without the method.
        """
        ...

    # peak_memory_bytes() -> int | None: the most bytes that this process has had of any of its devices at a time; None
    # where nothing counts them. used_memory_bytes() counts those in use now. A runtime may do without them.


def peak_memory_bytes(runtime: Runtime) -> int | None:
    """Returns the most bytes that a runtime used; None for a runtime that does not count them."""
    return _count(runtime, "peak_memory_bytes")


def used_memory_bytes(runtime: Runtime) -> int | None:
    """Returns the bytes that a runtime uses now; None for a runtime that does not count them."""
    return _count(runtime, "used_memory_bytes")


def _count(runtime: Runtime, name: str) -> int | None:
    count: Callable[[], int | None] | None = getattr(runtime, name, None)
    return None if count is None else count()


class Backend(Protocol):
    """One device family."""

    family: str

    def probe(self, timeout_s: float) -> Probe: ...

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        """Returns a runtime on these devices; cache_dir holds the persistent compilation cache; None: all cold."""
        ...

    # declares: Family: what is asked of the family before a device is looked for. A backend of another distribution has
    # it; of ours families.py does.
    # open_torch(devices) -> Runtime: one in torch, for suites that run there. A backend may do without it.
    # open_callables(devices, cache_dir) -> Runtime: one for callables of a user's own, where these need less than
    # engines do. A backend may do without it.
    # classes(device) -> tuple[str, ...]: "gpu", "npu" or none, from a family that has devices of several classes. A
    # backend may do without it.
    # no_callables: str: why a callable of this process cannot run there, though devices are found: engines that open
    # them by themselves can. A backend may do without it.
    # bare_stack(devices) -> Stack: what is known of devices that nobody opened: driver, firmware, modes; runtime and
    # compiler None. A backend may do without it.

    # memory_bandwidth_bytes_per_s(device) -> float | None: what its driver makes of clock and bus; None where it tells
    # neither. A backend may do without it.

    # visible(devices) -> Mapping[str, str]: the environment in which a process sees these devices alone, in their
    # order. A backend may do without it.

    def telemetry(self, devices: Sequence[Device]) -> Telemetry | None:
        """Reads the state of devices that nobody opened; None where nothing tells it. A backend may do without."""
        ...
