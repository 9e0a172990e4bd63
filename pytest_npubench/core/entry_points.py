"""What other distributions register by entry points: a group for each kind of thing, imported when it is asked for.

A name that is taken and a thing that cannot be imported concern those alone who ask for it: everything else goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from importlib.metadata import EntryPoint
from typing import Any

from pytest_npubench.errors import BrokenEntryError


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A name of a group, with every entry point of that name. `what` is the word for the group's things: "suite"."""

    what: str
    name: str
    points: tuple[EntryPoint, ...]

    @property
    def origin(self) -> str:
        """The distributions that register it."""
        return " and ".join(point.dist.name if point.dist is not None else point.value for point in self.points)

    def load(self, fits: Callable[[Any], bool], want: str) -> Any:
        """The thing itself, for which `fits` holds; `want` says in words what that is.

        Raises BrokenEntryError where several distributions have the name, where the import fails, and where it fails
        `fits`.
        """
        if len(self.points) > 1:
            raise BrokenEntryError(f"two {self.what}s are called {self.name!r}: those of {self.origin}; uninstall one")
        (point,) = self.points
        try:
            found = point.load()
        except (Exception, SystemExit) as error:
            raise BrokenEntryError(
                f"{self.what} {self.name!r} of {self.origin} cannot be imported: {type(error).__name__}: {error}"
            ) from error
        if not fits(found):
            raise BrokenEntryError(f"{self.what} {self.name!r} of {self.origin}: {point.value} is no {want}")
        return found


@lru_cache(maxsize=16)
def _all(what: str, group: str) -> Mapping[str, Entry]:
    points: dict[str, list[EntryPoint]] = {}
    for point in metadata.entry_points(group=group):
        points.setdefault(point.name, []).append(point)
    return {name: Entry(what=what, name=name, points=tuple(points[name])) for name in sorted(points)}


def entries(what: str, group: str, own: Collection[str]) -> Mapping[str, Entry]:
    """By name, sorted, without the names that are our own. Nothing is imported."""
    return {name: entry for name, entry in _all(what, group).items() if name not in own}


def clashes(what: str, group: str, own: Collection[str]) -> tuple[str, ...]:
    """A sentence for each name of ours that another distribution registers as well: what is ours goes on."""
    return tuple(
        f"a second {what} is called {name!r}: that of {entry.origin}, which is left out; rename it"
        for name, entry in _all(what, group).items()
        if name in own
    )
