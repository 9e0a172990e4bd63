"""The backends: one file a device family, holding one `BACKEND`. A file is imported when its family is asked for.

families.py says which families there are and what each declares; a distribution adds one by an entry point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from pytest_npubench.backends.protocol import Backend, Device, Probe, Runtime
from pytest_npubench.core import families
from pytest_npubench.errors import DeviceUnavailableError, RegistryError


def register(backend: Backend) -> None:
    """Put a backend in the place of the shipped one. Raises RegistryError on an unknown family or a second backend."""
    if backend.family not in families.names():
        raise families.BACKENDS.unknown(backend.family)
    if backend.family in families.BACKENDS.added:
        raise RegistryError(f"two backends for family {backend.family!r} were registered")
    families.BACKENDS.added[backend.family] = backend


def backend(family: str) -> Backend:
    """Returns the family's backend. Raises RegistryError on an unknown family or a file that does not hold its own
    backend, BrokenEntryError for one of another distribution that cannot be had."""
    if family in families.OF_EXTENSIONS and family not in families.BACKENDS.names():
        return AbsentBackend(family)
    itself: Backend = families.BACKENDS.get(family)
    return itself


class AbsentBackend:
    """Stands for the backend of an extension that is not installed: it has no devices and says why."""

    no_callables = ""

    def __init__(self, family: str) -> None:
        self.family = family
        extension = families.OF_EXTENSIONS[family]
        self.reason = f"devices of {family} are looked for by the extension {extension}, which is not here"

    def probe(self, timeout_s: float) -> Probe:
        return Probe(reason=self.reason)

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        """Raises DeviceUnavailableError always."""
        raise DeviceUnavailableError(self.reason)

    def telemetry(self, devices: Sequence[Device]) -> None:
        return None


def torch_missing(family: str) -> str:
    """Why torch cannot be used, empty where it can. Imports nothing."""
    return "" if find_spec("torch") else f"torch is not installed: pip install pytest-npubench[{family}]"


def why_no_callables(family: str) -> str:
    """Why no callable of this process runs on devices of the family; empty where one can."""
    reason: str = getattr(backend(family), "no_callables", "")
    return reason


def visible(backend: Backend, devices: Sequence[Device]) -> Mapping[str, str]:
    """Returns the environment in which a process sees these devices alone; empty where the family has no such thing."""
    hide: Callable[[Sequence[Device]], Mapping[str, str]] | None = getattr(backend, "visible", None)
    return {} if hide is None else hide(devices)


def open_torch(backend: Backend, devices: Sequence[Device]) -> Runtime:
    """Returns a torch runtime on these devices. Raises DeviceUnavailableError where the family has none."""
    opener = getattr(backend, "open_torch", None)
    if opener is None:
        raise DeviceUnavailableError(f"{devices[0].id}: no torch runtime for devices of {backend.family}")
    runtime: Runtime = opener(devices)
    return runtime
