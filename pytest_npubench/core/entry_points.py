"""What is registered by entry points: a group for each kind of thing, imported when it is asked for.

Other distributions register theirs, and the folders of extensions/ come in the same way. A name that is taken and a
thing that cannot be imported concern those alone who ask for it: everything else goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata
from importlib.metadata import EntryPoint
from itertools import groupby
from pathlib import Path
from typing import Any

from pytest_npubench.errors import BrokenEntryError

PREFIX = "pytest_npubench."
DISTRIBUTION = "pytest-npubench"
PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A name of a group, with every entry point of that name. `what` is the word for the group's things: "suite"."""

    what: str
    name: str
    points: tuple[EntryPoint, ...]

    @property
    def origin(self) -> str:
        """Returns the distributions that register it."""
        return " and ".join(point.dist.name if point.dist is not None else point.value for point in self.points)

    def load(self, fits: Callable[[Any], bool], want: str) -> Any:
        """Returns the thing itself, for which `fits` holds; `want` says in words what that is.

        Raises BrokenEntryError where several distributions have the name, where the import fails, and where it fails
        `fits`.
        """
        if len(self.points) > 1:
            raise BrokenEntryError(f"two {self.what}s are called {self.name!r}: those of {self.origin}; uninstall one")
        (point,) = self.points
        try:
            thing = point.load()
        except (Exception, SystemExit) as error:
            raise BrokenEntryError(
                f"{self.what} {self.name!r} of {self.origin} cannot be imported: {type(error).__name__}: {error}"
            ) from error
        if not fits(thing):
            raise BrokenEntryError(f"{self.what} {self.name!r} of {self.origin}: {point.value} is no {want}")
        return thing


def installed_version(distribution: str) -> str | None:
    """Returns a distribution's version by its metadata; None where it is not installed. Nothing is imported."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@cache
def extensions(what: str, group: str) -> Mapping[str, Entry]:
    """Returns the entries that this distribution's extensions register in a group, by name, sorted, where the
    extension's folder is there. Nothing is imported."""
    try:
        points = metadata.distribution(DISTRIBUTION).entry_points.select(group=group)
    except metadata.PackageNotFoundError:  # a checkout on the path that is not installed
        return {}
    there = sorted((point for point in points if _is_there(point.module)), key=lambda point: point.name)
    return {point.name: Entry(what=what, name=point.name, points=(point,)) for point in there}


def _is_there(module: str) -> bool:
    path = PACKAGE.parent.joinpath(*module.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


@lru_cache(maxsize=1)
def _by_group() -> Mapping[str, Mapping[str, tuple[EntryPoint, ...]]]:
    """Returns the entry points that others have in our groups, by name, sorted. Looking through what is installed is
    slow: it is done once."""
    groups: dict[str, dict[str, tuple[EntryPoint, ...]]] = {}
    installed = metadata.entry_points()
    for group in installed.groups:
        if group.startswith(PREFIX):
            others = (point for point in installed.select(group=group) if not _is_ours(point))
            points = sorted(others, key=lambda point: point.name)
            groups[group] = {name: tuple(same) for name, same in groupby(points, key=lambda point: point.name)}
    return {group: names for group, names in groups.items() if names}


def _is_ours(point: EntryPoint) -> bool:
    return point.dist is not None and _name(point.dist) == DISTRIBUTION


@cache
def _name(distribution: metadata.Distribution) -> str:
    """Returns the distribution's name, for which its whole METADATA, readme included, is parsed."""
    return distribution.name


def groups() -> Collection[str]:
    """Returns the groups that other distributions register something in."""
    return _by_group().keys()


def entries(what: str, group: str, shipped: Collection[str]) -> Mapping[str, Entry]:
    """Returns the entries of other distributions by name, sorted, without the names in `shipped`. Nothing is
    imported."""
    points = _by_group().get(group, {})
    return {name: Entry(what=what, name=name, points=same) for name, same in points.items() if name not in shipped}


def clashes(what: str, group: str, shipped: Collection[str]) -> tuple[str, ...]:
    """Returns a sentence for each name in `shipped` that another distribution registers as well: ours is used."""
    return tuple(
        f"a second {what} is called {name!r}: that of {Entry(what=what, name=name, points=same).origin}, "
        "which is left out; rename it"
        for name, same in _by_group().get(group, {}).items()
        if name in shipped
    )
