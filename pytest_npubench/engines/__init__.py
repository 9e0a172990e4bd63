"""The engines that run models: a descriptor each, by name and device family.

A distribution adds one by an entry point of the group `pytest_npubench.engines`: its name is the engine's, its value an
`EngineDescriptor` (descriptor.py). It is imported when the engine is asked for.

"reference" is the engine that a family has of ours: on Qualcomm AI Hub that is `aihub`, elsewhere the decoders of
reference.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

from pytest_npubench.engines.descriptor import EngineDescriptor
from pytest_npubench.errors import RegistryError

GROUP = "pytest_npubench.engines"
REFERENCE = "reference"
OWN = (REFERENCE, "vllm", "maxtext", "nxd", "aihub")
"""The modules of this package that hold a descriptor ENGINE, by the engines' names."""


@lru_cache(maxsize=1)
def registered() -> Mapping[str, Callable[[], EngineDescriptor]]:
    """How each is had, by name: those of this package first. Raises RegistryError on a taken name."""
    found: dict[str, Callable[[], EngineDescriptor]] = {name: partial(_own, name) for name in OWN}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name in found:
            raise RegistryError(f"a second engine is called {point.name!r}: that of {_origin(point)}; rename one")
        found[point.name] = partial(_loaded, point)
    return found


def names() -> tuple[str, ...]:
    return tuple(registered())


@cache
def engine(name: str, family: str | None = None) -> EngineDescriptor:
    """The engine of that name, as it stands for a family. Raises RegistryError on an unknown name, and for one of
    another distribution that cannot be imported."""
    if name == REFERENCE:
        return next((one for one in map(_own, OWN) if family in one.reference_on), _own(REFERENCE))
    if name not in registered():
        raise RegistryError(f"no engine {name!r}; known: {', '.join(names())}")
    return registered()[name]()


def title_of(name: str) -> str:
    """How reports write it. A record may be of an engine that is not installed here."""
    try:
        return engine(name).title
    except RegistryError:
        return name


@cache
def _own(name: str) -> EngineDescriptor:
    found: EngineDescriptor = import_module(f"{__name__}.{name}").ENGINE
    return found


def _loaded(point: EntryPoint) -> EngineDescriptor:
    try:
        found = point.load()
    except Exception as error:
        raise RegistryError(
            f"engine {point.name!r} of {_origin(point)} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, EngineDescriptor) or found.name != point.name:
        raise RegistryError(
            f"engine {point.name!r} of {_origin(point)}: {point.value} is no EngineDescriptor of that name"
        )
    return found


def _origin(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
