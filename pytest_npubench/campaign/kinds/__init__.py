"""The kinds of cases of the bucket suite: one file each, holding one `KIND`."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from pytest_npubench.campaign.kinds.protocol import CaseKind
from pytest_npubench.errors import RegistryError


def case_kinds() -> tuple[str, ...]:
    """The names of all kinds: the files of this folder that hold one."""
    return tuple(sorted(info.name for info in iter_modules(__path__) if info.name != "protocol"))


def case_kind(name: str) -> CaseKind:
    """The kind of that name. Raises RegistryError on an unknown one, or a file that does not hold its own kind."""
    if name not in case_kinds():
        raise RegistryError(f"no case kind {name!r}; known: {', '.join(case_kinds())}")
    kind: CaseKind | None = getattr(import_module(f"{__name__}.{name}"), "KIND", None)
    if kind is None or kind.name != name:
        raise RegistryError(f"campaign/kinds/{name}.py does not define KIND of name {name!r}")
    return kind
