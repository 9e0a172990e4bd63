"""The device families: one file each, holding one `BACKEND`. A file is imported when its family is asked for."""

from __future__ import annotations

from importlib import import_module

from pytest_npubench.backends.protocol import Backend
from pytest_npubench.errors import RegistryError
from pytest_npubench.hardware import FAMILIES

_registered: dict[str, Backend] = {}


def register(backend: Backend) -> None:
    """Add or, under a family of ours, refuse a backend. Raises RegistryError on a duplicate."""
    if backend.family in FAMILIES or backend.family in _registered:
        raise RegistryError(f"a backend for family {backend.family!r} is there already")
    _registered[backend.family] = backend


def backend(family: str) -> Backend:
    """The family's backend. Raises RegistryError on an unknown family or a file that does not hold its own backend."""
    if family in _registered:
        return _registered[family]
    if family not in FAMILIES:
        known = ", ".join((*FAMILIES, *_registered))
        raise RegistryError(f"no backend for family {family!r}; known: {known}")
    found: Backend | None = getattr(import_module(f"{__name__}.{family}"), "BACKEND", None)
    if found is None or found.family != family:
        raise RegistryError(f"backends/{family}.py does not define BACKEND of family {family!r}")
    return found
