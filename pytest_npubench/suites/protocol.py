"""What a suite is to everybody else: one object with all that the plugin, the commands and the reports ask of it.

A suite is a folder: `SUITE` in its `__init__.py`, which imports nothing heavy, and beside it what only the suite knows.
`kinds/` holds a file for each kind of its cases with one `KIND` (campaign.protocol.CaseKind). The smallest suite has a
plan, a bench and one kind: plans() and bench() are the two methods that every suite must have.

Methods import what they need when they are called, so that of a run's suites only the selected ones are loaded: a
method that a function of a module is says so by `of_module("module:function")`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, ClassVar

from pytest_npubench.core.entry_points import Entry, entries, extensions
from pytest_npubench.engines import REFERENCE
from pytest_npubench.errors import BrokenEntryError

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.memory import MemoryModel
    from pytest_npubench.campaign.points import Measured
    from pytest_npubench.campaign.protocol import Bench, CampaignPlan, CampaignPoint, CaseKind, FrozenWorkload
    from pytest_npubench.campaign.visits import Round
    from pytest_npubench.core.hardware import HardwareSpec
    from pytest_npubench.core.run_option import Option
    from pytest_npubench.core.toml_table import TomlTable
    from pytest_npubench.engines.descriptor import EngineDescriptor
    from pytest_npubench.reports.lanes import Lane
    from pytest_npubench.reports.page import Chart, Parts, Rounds
    from pytest_npubench.store.baselines import Baselines
    from pytest_npubench.store.fingerprint import FingerprintKey
    from pytest_npubench.verdict.case_record import CaseRecord, Cases
    from pytest_npubench.verdict.result import Judgement

KIND, KINDS = "kind", "pytest_npubench.kinds"
"""The group in which a kind is added to a suite that is another's, by an entry point SUITE.KIND."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a run chose, as far as plans depend on it. options: values of suites' own options, by name."""

    profile: str = "quick"
    engine: str = REFERENCE
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Where a bench works: a folder for what it keeps beside the journal, and what workloads were frozen at."""

    folder: Path
    frozen: Mapping[str, Any] = field(default_factory=dict)


class ShownKind:
    """A kind that says what its cases show: one that the suite's folder does not hold may be one. `note` stands on the
    page above their figures, and says what these mean."""

    name: str
    note: ClassVar[str] = ""

    def lines(self, cases: Cases) -> Sequence[str]:
        """What the end of a run says of the kind's cases."""
        return ()


class Suite:
    """One suite. `name` is its marker, its folder of tests and the head of its cases' keys; `about` stands behind the
    marker in `pytest --markers`; `section` is its table in a hardware file, None where it needs none."""

    name: ClassVar[str]
    about: ClassVar[str]
    section: ClassVar[str | None] = None
    options: ClassVar[tuple[Option, ...]] = ()
    """Settings of a run that are its own: plans find their values in Choice.options."""
    record: ClassVar[str] = ""
    """The class that its section is read into, as "module:Class" of its folder."""
    report: ClassVar[str] = ""
    """The module of its folder that shows its cases, by `parts` and `lines`."""
    only_by_name: ClassVar[bool] = False
    """Whether its cases run only where a run names it: by its marker in -m, or by the path of its folder or a file."""

    # -- what every suite has

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        """One for each campaign of a hardware file; none where the file has nothing for the suite."""
        raise NotImplementedError

    def bench(self, runtime: Runtime, plan: CampaignPlan, site: Site) -> Bench[Any]:
        """What measures a plan's points, in the process that owns the device."""
        raise NotImplementedError

    # -- what it may have

    def read(self, root: TomlTable) -> object:
        """Returns the suite's section of a hardware file, as `root.read(section, Record)` reads it: a record of a class
        of its own, by which HardwareSpec.section finds it. Raises HardwareFileError."""
        if self.section is None or not self.record:
            raise root.error(self.name, f"suite {self.name} has no section in hardware files; want none")
        module, _, name = self.record.partition(":")
        section: object = root.read(self.section, getattr(self._module(module), name))
        return section

    def _module(self, name: str) -> Any:
        """A module of its folder, or of this package by its whole name."""
        return import_module(name if name.startswith("pytest_npubench.") else f"{type(self).__module__}.{name}")

    @property
    def kinds(self) -> tuple[str, ...]:
        """Returns the names of its kinds: the files of its folder `kinds`, and what others add to it. Raises
        BrokenEntryError where there is no such folder."""
        package = f"{type(self).__module__}.kinds"
        try:
            folder = find_spec(package)
        except ModuleNotFoundError:  # the suite's own module is no package
            folder = None
        if folder is None:
            raise BrokenEntryError(f"suite {self.name!r} has no kinds: want a package {package}")
        files = {info.name for info in iter_modules(folder.submodule_search_locations)}
        return tuple(sorted({*files, *_added(self.name)}))

    def kind(self, name: str) -> CaseKind[Any]:
        """Returns the kind of that name. Raises BrokenEntryError for a file that cannot be imported, or that does not
        hold its own kind."""
        if name in (added := _added(self.name)):
            loaded: CaseKind[Any] = added[name].load(
                lambda thing: (thing.suite, thing.name) == (self.name, name), f"kind {name!r} of the suite {self.name}"
            )
            return loaded
        module = f"{type(self).__module__}.kinds.{name}"
        try:
            kind: CaseKind[Any] | None = getattr(import_module(module), "KIND", None)
        except Exception as error:
            raise BrokenEntryError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
        if kind is None or kind.name != name:
            raise BrokenEntryError(f"{module} does not define KIND of name {name!r}")
        return kind

    def shown_kinds(self) -> Iterator[ShownKind]:
        """Yields the kinds of others that say what their cases show."""
        for name in _added(self.name):
            with suppress(BrokenEntryError):
                if isinstance(kind := self.kind(name), ShownKind):
                    yield kind

    def notes(self) -> Mapping[str, str]:
        """Says by kind what the figures of such kinds mean."""
        return {kind.name: kind.note for kind in self.shown_kinds() if kind.note}

    def engine(self, plan: CampaignPlan) -> EngineDescriptor | None:
        """Returns the engine that runs a plan's models; None where the suite is none that engines can be chosen for."""
        from pytest_npubench.campaign.plan import EnginePlan

        return plan.runner if isinstance(plan, EnginePlan) else None

    def unsupported(self, plan: CampaignPlan, points: Sequence[CampaignPoint]) -> str:
        """Why the plan's engine cannot measure these points at all; empty where it can."""
        return ""

    def remarks(self, plan: CampaignPlan, points: Sequence[CampaignPoint]) -> Sequence[str]:
        """What a run says of a campaign that was measured, a line each."""
        return ()

    @property
    def memory(self) -> MemoryModel | None:
        """What its campaigns need of a device's memory; None where nobody knows."""
        return None

    # -- limits that the first acceptance freezes

    def frozen(
        self, plan: CampaignPlan, baselines: Baselines, key: FingerprintKey, across: Sequence[str]
    ) -> Mapping[str, FrozenWorkload]:
        """Returns by workload what was frozen for a campaign's cases."""
        return {}

    def used(self, points: Sequence[CampaignPoint], measured: Measured) -> Mapping[str, Any]:
        """Returns by workload what the rounds that were measured were held to."""
        return {}

    def held_to(
        self,
        judgement: Judgement,
        plan: CampaignPlan,
        points: Sequence[CampaignPoint],
        measured: Measured,
        frozen: Mapping[str, FrozenWorkload],
    ) -> Judgement:
        """Adds the limits that a case was held to, and their origin, to its judgement."""
        return judgement

    # -- what a case did

    def work(self, plan: CampaignPlan, points: Sequence[CampaignPoint], measured: Measured) -> Mapping[str, float]:
        """What one visit of each of a case's points did, as numbers by name; equal work gives equal numbers."""
        return {}

    def impossible(self, plan: CampaignPlan, points: Sequence[CampaignPoint], measured: Measured) -> str:
        """Why the times of these points cannot be, in words; empty where they can."""
        return ""

    # -- what it shows

    def parts(self, cases: Cases, rounds: Rounds) -> Parts:
        """Charts, tables and remarks of one campaign's section of a report: its cases, and the rounds of its
        journal. What `cases` could not read is told on the page."""
        if self.report:
            parts: Parts = self._module(self.report).parts(cases, rounds)
            return parts
        from pytest_npubench.reports.campaign_sections import plain_parts

        return plain_parts(cases, rounds)

    def across(self, cases: Cases) -> Sequence[Chart]:
        """Charts of all batch sizes of one model on a device; none where each campaign shows its own alone."""
        return ()

    def lanes(self, points: Round) -> Iterable[Lane]:
        """What one round of a campaign becomes in a trace."""
        from pytest_npubench.reports.lanes import plain_lanes

        return plain_lanes(points)

    def lines(self, cases: Cases) -> Sequence[str]:
        """What the end of a run says of these cases of the suite, a line each."""
        said: Sequence[str] = self._module(self.report).lines(cases) if self.report else ()
        return said

    def heading(self, record: CaseRecord[Any]) -> str:
        """What the title of a campaign's section says behind the hardware."""
        return f"{record.model}, {self.name}"


def of_module(target: str) -> Any:
    """A method of a suite that calls "module:function" with what it is given. The module is imported then."""

    def method(suite: Suite, *arguments: Any) -> Any:
        module, _, name = target.partition(":")
        return getattr(suite._module(module), name)(*arguments)

    return method


def _added(suite: str) -> Mapping[str, Entry]:
    """Maps names to the kinds that extensions and other distributions add to a suite."""
    entered = {**entries(KIND, KINDS, extensions(KIND, KINDS)), **extensions(KIND, KINDS)}
    named = ((name.partition("."), entry) for name, entry in entered.items())
    return {kind: entry for (owner, _, kind), entry in named if owner == suite}
