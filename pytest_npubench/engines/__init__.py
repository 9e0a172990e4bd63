"""The engines that run models: a descriptor each, by name and device family.

An extension or another distribution adds one by an entry point of the group `pytest_npubench.engines`: its name is the
engine's, its value an `EngineDescriptor` (descriptor.py). It is imported when the engine is asked for.

"reference" are the decoders of our own (reference.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_npubench.core.entry_points import Entry, clashes, entries, extensions
from pytest_npubench.engines.descriptor import EngineDescriptor
from pytest_npubench.errors import RegistryError, did_you_mean

WHAT, GROUP = "engine", "pytest_npubench.engines"
REFERENCE = "reference"
LISTED = (REFERENCE, "vllm", "maxtext", "nxd", "aihub", "compiled")
"""The order in which engines are listed; those that it does not name come last, by name."""


def ours() -> tuple[str, ...]:
    """Those of this package, and those of extensions that are installed."""
    found = {REFERENCE, *extensions(WHAT, GROUP)}
    return (*filter(found.__contains__, LISTED), *sorted(found.difference(LISTED)))


def names() -> tuple[str, ...]:
    """Ours, then those of other distributions."""
    return (*ours(), *_offered())


def taken() -> tuple[str, ...]:
    """A sentence for each name of ours that another distribution registers as well."""
    return clashes(WHAT, GROUP, ours())


def engine(name: str) -> EngineDescriptor:
    """The engine of that name. Raises RegistryError on an unknown name, BrokenEntryError for
    one of another distribution that cannot be had."""
    registered = {**extensions(WHAT, GROUP), **_offered()}
    if name == REFERENCE:
        from pytest_npubench.engines.reference import ENGINE

        return ENGINE
    if name not in registered:
        raise RegistryError(f"no engine {name!r}; known: {', '.join(names())}{did_you_mean(name, names())}")
    return _loaded(registered[name])


def title_of(name: str) -> str:
    """How reports write it. A record may be of an engine that is not installed here."""
    try:
        return engine(name).title
    except RegistryError:
        return name


def _loaded(entry: Entry) -> EngineDescriptor:
    found: EngineDescriptor = entry.load(
        lambda thing: isinstance(thing, EngineDescriptor) and thing.name == entry.name, "EngineDescriptor of that name"
    )
    return found


def _offered() -> Mapping[str, Entry]:
    return entries(WHAT, GROUP, ours())
