"""What a run knows of an engine before anything of it is imported: whom it serves, and where the rest of it is.

A descriptor is light: its module imports no jax, no torch and nothing of the vendor's. `parts` says by suite where the
object lies that runs the suite on this engine, as an entry point does: "MODULE:CLASS". The bucket suite wants a
`suites.buckets.service.BucketService` there, the scheduling suite a `suites.scheduling.service.ServingService`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_npubench.errors import RegistryError

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Backend, Device, Probe, Runtime
    from pytest_npubench.core.hardware import HardwareSpec


class EngineDescriptor:
    """One engine. `name` is what --npubench-engine takes, `title` what reports write, `about` what it is in a line."""

    name: ClassVar[str]
    title: ClassVar[str]
    about: ClassVar[str]
    families: ClassVar[tuple[str, ...]]
    """The device families that it serves."""
    is_reference: ClassVar[bool] = False
    """Whether it is the default: campaigns on it do not name it."""
    parts: ClassVar[Mapping[str, str]]
    """By suite, where the class lies that runs the suite on this engine."""
    is_placed_by_itself: ClassVar[bool] = False
    """Whether it tells its own processes which devices they see; else the campaign's process sees those alone."""
    has_devices: ClassVar[bool] = True
    """Whether what it runs on is there, so that one run at a time may have it."""

    def why_not_served(self, suite: str, family: str) -> str:
        """Why it cannot run a suite on devices of a family here; empty where it can. Opens no device."""
        if suite not in self.parts:
            return f"{self.name} does not serve the suite {suite}; it serves {', '.join(self.parts)}"
        if family not in self.families:
            return f"{self.name} does not serve {family}; it serves {', '.join(self.families)}"
        return self.why_not_here(family)

    def why_not_here(self, family: str) -> str:
        """What of it is missing on this machine, for a family that it serves; empty where nothing is."""
        return ""

    def probe(self, spec: HardwareSpec) -> Probe | None:
        """The devices that it has of its own for a hardware file, or why there are none; None where it runs on those of
        the family, which its backend looks for."""
        return None

    def framework(self, suite: str, family: str) -> str:
        """What opens a family's devices for a suite: "jax" or "torch", which the backends know, or an engine's name."""
        return self.name

    def software(self) -> str:
        """What of it is part of the stack that results are of, with its version; what its runtime tells by itself is
        not told here."""
        return ""

    def open(self, backend: Backend, devices: Sequence[Device], cache_dir: str | None) -> Runtime:
        """A runtime on these devices. Raises DeviceUnavailableError where it does not open."""
        return backend.open(devices, cache_dir)

    def part(self, suite: str) -> Any:
        """What runs a suite on this engine. Raises RegistryError where it cannot be imported."""
        return _made(self.name, self.parts[suite])


@cache
def _made(engine: str, path: str) -> Any:
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)()
    except Exception as error:
        raise RegistryError(f"engine {engine}: {path} cannot be had: {type(error).__name__}: {error}") from error
