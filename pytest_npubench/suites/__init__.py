"""The suites: a folder each. What there is follows from what is registered: markers, kinds, sections of hardware files.

An extension or another distribution adds one by an entry point of the group `pytest_npubench.suites`: its name is the
suite's, its value a `Suite` (protocol.py). That of another distribution is imported when something of it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from pytest_npubench.core.registry import Registry
from pytest_npubench.errors import BrokenEntryError, RegistryError, did_you_mean
from pytest_npubench.suites.protocol import Suite

if TYPE_CHECKING:
    from pytest_npubench.campaign.protocol import CaseKind
    from pytest_npubench.core.run_option import Option
    from pytest_npubench.core.toml_table import TomlTable
    from pytest_npubench.reports.page import Shown

SUITES: Registry[Suite] = Registry(
    what="suite",
    group="pytest_npubench.suites",
    package=__name__,
    attribute="SUITE",
    fits=lambda thing, name: isinstance(thing, Suite) and thing.name == name,
    want="Suite of that name",
    files=tuple(info.name for info in iter_modules(__path__) if info.ispkg),
)
names, taken = SUITES.names, SUITES.taken
OF_EXTENSIONS = ("offload", "partition")
"""Sections of hardware files that extensions read. Where the extension is not installed, they are nobody's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A suite's name, what its marker says, and its section of hardware files. options: its own, which are those of a
    suite of this package alone: nobody imports another distribution's for them."""

    name: str
    about: str
    section: str | None
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadSection:
    """A section of a hardware file whose suite cannot be had: nobody asks for it but that suite."""

    name: str
    reason: str


@lru_cache(maxsize=1)
def registered() -> Mapping[str, Registered]:
    """Lists the suites by name: those of this package first, extensions included, then those of other distributions,
    which are not imported."""
    ours = map(suite, SUITES.ours())
    others = SUITES.others().items()
    return {
        **{
            one.name: Registered(name=one.name, about=one.about, section=one.section, options=one.options)
            for one in ours
        },
        **{name: Registered(name=name, about=f"a suite of {entry.origin}", section=name) for name, entry in others},
    }


def suite(name: str) -> Suite:
    """Raises RegistryError on an unknown name, BrokenEntryError for one of another distribution that cannot be had."""
    itself = SUITES.get(name)
    if name not in SUITES.ours():
        _ = itself.kinds  # a suite without any is told of at once
    return itself


def usable() -> tuple[Suite, ...]:
    """All that can be had."""
    return tuple(found for found, _ in _tried() if found is not None)


def case_kind(name: str, markers: Collection[str] = ()) -> CaseKind[Any]:
    """Returns the kind of that name; where two suites have one, that of the suite which a test's markers name, else of
    the one that runs without being named.

    Raises RegistryError on an unknown one, or where the markers do not tell which; BrokenEntryError on an unknown one
    where a suite cannot be had, as it may be that suite's.
    """
    suites = usable()
    having = [one for one in suites if name in one.kinds]
    named = [one for one in having if one.name in markers]
    having = named or [one for one in having if not one.only_by_name] or having
    if len(having) > 1:
        belonging = " and ".join(one.name for one in having)
        raise RegistryError(f"case kind {name!r} belongs to {belonging}; give the test the marker of one of them")
    if having:
        return having[0].kind(name)
    kinds = [kind for one in suites for kind in one.kinds]
    unknown = f"no case kind {name!r}; known: {', '.join(kinds)}{did_you_mean(name, kinds)}"
    if broken := [why for _, why in _tried() if why]:
        raise BrokenEntryError("; ".join([unknown, *broken]))
    raise RegistryError(unknown)


def sections(*, deferred: bool = False) -> dict[str, Callable[[TomlTable], object]]:
    """How the suites' sections of hardware files are read, by key: at once, or when somebody asks for one."""
    read = _deferred if deferred else _read
    read_by = {one.section: partial(read, name) for name, one in registered().items() if one.section is not None}
    return {**dict.fromkeys(OF_EXTENSIONS, _unread), **read_by}


def shown(name: str) -> Shown:
    """What the suite of that name shows in reports; what every campaign has where there is no such suite here."""
    try:
        return suite(name)
    except RegistryError:
        from pytest_npubench.reports.campaign_sections import PlainShown

        return PlainShown()


def _read(name: str, root: TomlTable) -> object:
    """A section that nobody can read is an error of those cases that need it, so of none in this run."""
    try:
        return suite(name).read(root)
    except BrokenEntryError as error:
        return UnreadSection(name=name, reason=str(error))


def _unread(root: TomlTable) -> object:
    return UnreadSection(name="an extension", reason="the extension that reads it is not installed")


def _deferred(name: str, root: TomlTable) -> object:
    from pytest_npubench.core.hardware import DeferredSection

    return DeferredSection(partial(_read, name, root))


def _tried() -> list[tuple[Suite | None, str]]:
    """Each suite, or why it cannot be had."""
    tried: list[tuple[Suite | None, str]] = []
    for name in names():
        try:
            tried.append((suite(name), ""))
        except BrokenEntryError as error:
            tried.append((None, str(error)))
    return tried
