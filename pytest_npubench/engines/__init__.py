"""The engines that run models: a descriptor each, by name and device family.

An extension or another distribution adds one by an entry point of the group `pytest_npubench.engines`: its name is the
engine's, its value an `EngineDescriptor` (descriptor.py). It is imported when the engine is asked for.

"reference" are the decoders of our own (reference.py).
"""

from __future__ import annotations

from pytest_npubench.core.registry import Registry
from pytest_npubench.engines.descriptor import EngineDescriptor
from pytest_npubench.errors import RegistryError

REFERENCE = "reference"
OURS = (REFERENCE, "jax_moe")
ENGINES: Registry[EngineDescriptor] = Registry(
    what="engine",
    group="pytest_npubench.engines",
    package=__name__,
    attribute="ENGINE",
    fits=lambda thing, name: isinstance(thing, EngineDescriptor) and thing.name == name,
    want="EngineDescriptor of that name",
    files=OURS,
    first=OURS,
)
ours, names, taken = ENGINES.ours, ENGINES.names, ENGINES.taken


def engine(name: str) -> EngineDescriptor:
    """The engine of that name. Raises RegistryError on an unknown name, BrokenEntryError for
    one of another distribution that cannot be had."""
    return ENGINES.get(name)


def title_of(name: str) -> str:
    """How reports write it. A record may be of an engine that is not installed here."""
    try:
        return engine(name).title
    except RegistryError:
        return name
