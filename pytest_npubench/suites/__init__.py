"""The suites: a folder each. What there is follows from what is registered: markers, kinds, sections of hardware files.

A distribution adds one by an entry point of the group `pytest_npubench.suites`: its name is the suite's, its value a
`Suite` (protocol.py). It is imported when something of it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from pytest_npubench.errors import RegistryError
from pytest_npubench.suites.protocol import Suite

if TYPE_CHECKING:
    from pytest_npubench.campaign.kind import CaseKind
    from pytest_npubench.reports.page import Shown
    from pytest_npubench.toml_table import Table

GROUP = "pytest_npubench.suites"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A suite's name, what its marker says, its section of hardware files, and how it is had."""

    name: str
    about: str
    section: str | None
    load: Callable[[], Suite]


@lru_cache(maxsize=1)
def registered() -> Mapping[str, Registered]:
    """By name: those of this package first, then those of other distributions. Raises RegistryError on a taken name."""
    found: dict[str, Registered] = {}
    for suite in _own():
        found[suite.name] = Registered(
            name=suite.name, about=suite.about, section=suite.section, load=partial(_itself, suite)
        )
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name in found:
            raise RegistryError(f"a second suite is called {point.name!r}: that of {_origin(point)}; rename one")
        found[point.name] = Registered(
            name=point.name, about=f"a suite of {_origin(point)}", section=point.name, load=partial(_loaded, point)
        )
    return found


def names() -> tuple[str, ...]:
    return tuple(registered())


def suite(name: str) -> Suite:
    """Raises RegistryError on an unknown name, and for one of another distribution that cannot be imported."""
    if name not in registered():
        raise RegistryError(f"no suite {name!r}; known: {', '.join(names())}")
    return registered()[name].load()


def case_kind(name: str) -> CaseKind[Any]:
    """The kind of that name. Raises RegistryError on an unknown one, or one that two suites have."""
    having: list[Suite] = []
    known: list[str] = []
    broken: list[str] = []
    for one in names():
        try:
            found = suite(one)
        except RegistryError as error:  # of another distribution: no matter of ours, unless it should have the kind
            broken.append(str(error))
            continue
        known += found.kinds
        if name in found.kinds:
            having.append(found)
    if not having:
        raise RegistryError("; ".join([f"no case kind {name!r}; known: {', '.join(known)}", *broken]))
    if len(having) > 1:
        raise RegistryError(f"case kind {name!r} belongs to {' and '.join(one.name for one in having)}; rename one")
    return having[0].kind(name)


def sections() -> dict[str, Callable[[Table], object]]:
    """How the suites' sections of hardware files are read, by key."""
    return {one.section: partial(_read, name) for name, one in registered().items() if one.section is not None}


def shown(name: str) -> Shown:
    """What the suite of that name shows in reports; what every campaign has where there is no such suite here."""
    if name in registered():
        return suite(name)
    from pytest_npubench.reports.campaign_sections import PlainShown

    return PlainShown()


def _read(name: str, root: Table) -> object:
    return suite(name).read(root)


def _itself(found: Suite) -> Suite:
    return found


def _own() -> Iterator[Suite]:
    for info in iter_modules(__path__):
        if info.ispkg:
            found: Suite = import_module(f"{__name__}.{info.name}").SUITE
            yield found


def _loaded(point: EntryPoint) -> Suite:
    try:
        found = point.load()
    except Exception as error:
        raise RegistryError(
            f"suite {point.name!r} of {_origin(point)} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(found, Suite) or found.name != point.name:
        raise RegistryError(f"suite {point.name!r} of {_origin(point)}: {point.value} is no Suite of that name")
    return found


def _origin(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
