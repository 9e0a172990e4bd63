"""Things of one kind by name: a file each in a folder of ours, what extensions and other distributions register by
entry points (entry_points.py), and what a conftest adds.

A name of ours stays ours: a second thing of that name is left out, and `taken` says so. Worked example: the registry of
scheduling policies gets "chunked" from SCHEDULER of serving/schedulers/chunked.py, imported when it is asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, TypeVar

from pytest_npubench.core.entry_points import Entry, clashes, entries, extensions
from pytest_npubench.errors import RegistryError, did_you_mean

ThingT = TypeVar("ThingT")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Registry(Generic[ThingT]):
    """what: the word for one thing, as messages have it. group: of the entry points.

    package: in its modules `files` (None: all but `helpers`) `attribute` is the thing, whose attribute `named` says the
    module's name. fits: whether an object of an entry point is the thing of a name; want: what it is to be, in words,
    where {name} stands for the name.

    first: these names are listed first, in this order. reserved: names that are not to be taken. added: what was put in
    by other ways; it stands in the place of what has its name.
    """

    what: str
    group: str
    package: str
    attribute: str
    fits: Callable[[Any, str], bool]
    want: str
    named: str = "name"
    files: tuple[str, ...] | None = None
    helpers: Collection[str] = ()
    first: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    added: dict[str, ThingT] = field(default_factory=dict)

    def names(self) -> tuple[str, ...]:
        """Ours, those of other distributions, those that were added. Nothing is imported."""
        return tuple(dict.fromkeys((*self.ours(), *self.others(), *self.added)))

    def ours(self) -> tuple[str, ...]:
        """Returns the names of this package, those of extensions that are installed included."""
        names = {*self._files(), *extensions(self.what, self.group)}
        return (*filter(names.__contains__, self.first), *sorted(names.difference(self.first)))

    def others(self) -> Mapping[str, Entry]:
        """What other distributions register, by name, without the names that are ours."""
        return entries(self.what, self.group, (*self.ours(), *self.reserved))

    def taken(self) -> tuple[str, ...]:
        """Returns a sentence for each name of ours that another distribution registers as well."""
        return clashes(self.what, self.group, (*self.ours(), *self.reserved))

    def get(self, name: str) -> ThingT:
        """Returns the thing of that name. Raises RegistryError for an unknown name and for a file that does not hold
        its own, BrokenEntryError for an entry point that cannot be had."""
        if name in self.added:
            return self.added[name]
        if name in self._files():
            return self._in_file(name)
        entry = extensions(self.what, self.group).get(name) or self.others().get(name)
        if entry is None:
            raise self.unknown(name)
        thing: ThingT = entry.load(lambda candidate: self.fits(candidate, name), self.want.format(name=repr(name)))
        return thing

    def unknown(self, name: str, more: str = "") -> RegistryError:
        """Returns the error of a name that is not there. more: what else might be asked for, in words."""
        names = f"{', '.join(self.names())}{more}"
        return RegistryError(f"no {self.what} {name!r}; known: {names}{did_you_mean(name, self.names())}")

    def _files(self) -> tuple[str, ...]:
        if self.files is not None:
            return self.files
        modules = iter_modules(sys.modules[self.package].__path__)
        return tuple(info.name for info in modules if info.name not in self.helpers)

    def _in_file(self, name: str) -> ThingT:
        path = f"{self.package.rpartition('.')[2]}/{name}.py"
        try:
            module = import_module(f"{self.package}.{name}")
        except Exception as error:
            raise RegistryError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
        thing: ThingT | None = getattr(module, self.attribute, None)
        if thing is None or getattr(thing, self.named, None) != name:
            raise RegistryError(f"{path} does not define {self.attribute} of {self.named} {name!r}")
        return thing
