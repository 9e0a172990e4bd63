"""The kinds of cases of every suite: one file each, holding one `KIND`. Those of buckets are in this folder."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from pytest_npubench.campaign.kinds.protocol import CaseKind
from pytest_npubench.errors import RegistryError

FOLDERS = {
    "buckets": __name__,
    "scheduling": "pytest_npubench.campaign.serving.kinds",
    "partition": "pytest_npubench.campaign.partition.kinds",
    "offload": "pytest_npubench.campaign.offload.kinds",
    "server": "pytest_npubench.campaign.server.kinds",
}


def case_kinds(suite: str) -> tuple[str, ...]:
    """The names of a suite's kinds: the files of its folder that hold one."""
    folder = find_spec(FOLDERS[suite])
    assert folder is not None
    names = (info.name for info in iter_modules(folder.submodule_search_locations))
    return tuple(sorted(name for name in names if name != "protocol"))


def case_kind(name: str) -> CaseKind[Any]:
    """The kind of that name. Raises RegistryError on an unknown one, or a file that does not hold its own kind."""
    folders = {kind: folder for suite, folder in FOLDERS.items() for kind in case_kinds(suite)}
    if name not in folders:
        raise RegistryError(f"no case kind {name!r}; known: {', '.join(folders)}")
    kind: CaseKind[Any] | None = getattr(import_module(f"{folders[name]}.{name}"), "KIND", None)
    if kind is None or kind.name != name:
        where = folders[name].partition(".")[2].replace(".", "/")
        raise RegistryError(f"{where}/{name}.py does not define KIND of name {name!r}")
    return kind
