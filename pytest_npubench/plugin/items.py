"""A suite's case as pytest carries it from expansion to its test: the parameter, and what is stashed on its item.

A test is expanded into hardware files x models x batch sizes x the kind's own axes, equal on every machine.

The suites that a wheel ships, the package `npubench_suites`: their node ids, and the root of a run on them.

pytest names a file outside its root folder by the part of its path below the argument it was given: a case of
`--pyargs npubench_suites` would be "buckets/test_profile.py::...", which pytest finds in no folder.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.core import families
from pytest_npubench.core.hardware import CLASSES
from pytest_npubench.errors import BrokenEntryError, ConfigError, NpubenchError
from pytest_npubench.plain_text import plain
from pytest_npubench.suites import case_kind, names, suite

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Device
    from pytest_npubench.campaign.protocol import CampaignPlan, CampaignPoint, CaseKind
    from pytest_npubench.core.case import Case
    from pytest_npubench.engines.descriptor import EngineDescriptor
    from pytest_npubench.suites.protocol import Suite

DEVICES: pytest.StashKey[tuple[Device, ...]] = pytest.StashKey()
PROBE_FAILED: pytest.StashKey[str] = pytest.StashKey()
"""Why nobody could look for an item's devices, which may be there: the item fails."""
FIXTURE = "npubench"
NOT_NAMED = object()
"""The parameter of a test whose suite runs only by name, in a run that does not name it."""
NODE_ID = pytest.StashKey[str]()  # without the device's number, so that a case is called the same on every machine
PACKAGE = "npubench_suites"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedCase:
    """A case with what it needs to be planned and judged; the parameter that a suite's test receives."""

    case: Case
    plan: CampaignPlan
    kind: CaseKind[Any]
    suite: Suite

    @property
    def points(self) -> Sequence[CampaignPoint]:
        """What the case needs measured; none where they cannot be had, as of a workload that cannot be read: the case
        itself says so when it is judged."""
        try:
            return tuple(self.kind.points(self.case, self.plan))
        except NpubenchError:
            return ()

    @property
    def engine(self) -> EngineDescriptor | None:
        """What runs the plan's models; None where no engine can be chosen."""
        return self.suite.engine(self.plan)

    @property
    def why_not_served(self) -> str:
        """Why the engine cannot serve the case's devices here; empty where it can, and where none can be chosen."""
        return "" if self.engine is None else self.engine.why_not_served(self.suite.name, self.plan.spec.family)

    @property
    def digest(self) -> str:
        return self.case.digest(self.plan.settings)

    @property
    def limits(self) -> dict[str, float]:
        return dict(self.plan.limits)


def expanded_case(item: pytest.Item) -> ExpandedCase | None:
    """The suite case that an item runs; None where it is none."""
    callspec = getattr(item, "callspec", None)
    case = callspec.params.get("npubench_case") if callspec else None
    return case if isinstance(case, ExpandedCase) else None


def fail_unprobed(item: pytest.Item) -> None:
    """Fails the test of an item whose devices nobody could look for."""
    if PROBE_FAILED in item.stash:
        pytest.fail(plain(item.stash[PROBE_FAILED]), pytrace=False)


def is_named(of: Suite, item: pytest.Item) -> bool:
    """Whether the run names the suite, where it runs only then: by its marker in -m, or by the path of the test's file
    or folder."""
    if not of.only_by_name or of.name in re.findall(r"\w+", item.config.option.markexpr):
        return True
    return item.session.isinitpath(item.path) or item.session.isinitpath(item.path.parent)


def is_unnamed(item: pytest.Item) -> bool:
    """Whether its suite was not named, so that it stands for no case."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.params.get("npubench_case") is NOT_NAMED


def is_own(item: pytest.Item) -> bool:
    """Whether it is a test of the user's own."""
    return FIXTURE in getattr(item, "fixturenames", ())


def expand(metafunc: pytest.Metafunc, plans_of: Callable[[Suite], Sequence[CampaignPlan]]) -> None:
    """Parametrise a test that carries npubench_cases(kind) with the cases of its suite's plans."""
    marker = metafunc.definition.get_closest_marker("npubench_cases")
    assert marker is not None
    where = metafunc.definition.nodeid
    if len(marker.args) != 1 or marker.kwargs or "npubench_case" not in metafunc.fixturenames:
        raise pytest.UsageError(f"{where}: npubench_cases takes one kind, and its test the npubench_case fixture")
    cases: list[object]
    marked = {mark.name for mark in metafunc.definition.iter_markers()}
    try:
        kind = case_kind(marker.args[0], marked)
        its_suite = suite(kind.suite)
        # a case has its suite's marker, its test may do without
        missing = () if its_suite.name in marked else (its_suite.name,)
        if is_named(its_suite, metafunc.definition):
            plans = [plan for plan in plans_of(its_suite) if plan.includes(kind.name)]
            cases = [param for plan in plans for param in _params(its_suite, plan, kind, missing)]
        else:
            cases = [pytest.param(NOT_NAMED, id=its_suite.name)]
    except BrokenEntryError as error:  # an error of this test alone, which no selection of devices may hide
        suites = marked.intersection(names()) or names()
        cases = [pytest.param(error, id="broken", marks=_marks((*families.names(), *CLASSES, *suites)))]
    except ConfigError as error:  # the run's settings: no matter of this test's
        raise pytest.UsageError(str(error)) from None
    except NpubenchError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    metafunc.parametrize("npubench_case", cases, indirect=True)


def _params(of: Suite, plan: CampaignPlan, kind: CaseKind[Any], missing: Sequence[str]) -> Iterator[object]:
    """The cases of one plan, which share their marks: ten thousand of each would take as long as the cases."""
    marks = _marks((*plan.spec.markers, *missing))
    for axes in kind.axes(plan):
        expanded = ExpandedCase(case=plan.case(of.name, kind.name, axes), plan=plan, kind=kind, suite=of)
        yield pytest.param(expanded, id=expanded.case.id, marks=marks)


def _marks(markers: Iterable[str]) -> list[pytest.MarkDecorator]:
    return [getattr(pytest.mark, name) for name in dict.fromkeys(markers)]


def node_id(item: pytest.Item) -> str:
    """What runs the item again: with `--pyargs` from any folder where a shipped suite has it, else from the root.

    "npubench_suites.buckets.test_profile::test_profile[cpu-...]", wherever the package is installed.
    """
    module = getattr(getattr(item, "module", None), "__name__", "")
    return f"{module}::{item.nodeid.partition('::')[2]}" if is_shipped(module) else item.nodeid


def runs_again(item: pytest.Item, node: str) -> str:
    """What runs an item of that node id in another process, from any folder: by the absolute path of its file.

    But for shipped suites: given their path, pytest would not load the conftest.py of the folder that it is started in.
    """
    return node if is_shipped(node) else f"{item.path}::{node.partition('::')[2]}"


def is_shipped(name: str) -> bool:
    """Whether a module or node id belongs to the shipped suites."""
    return name.startswith(f"{PACKAGE}.")


def root_of_run(config: pytest.Config) -> Path:
    """The folder of baselines/ and .npubench/: pytest's root folder.

    But where pytest guessed that from a path into the shipped suites, it is the folder that pytest was started in: the
    guess is a folder above both, or one in site-packages.
    """
    guessed = config.inipath is None and config.option.rootdir is None
    if guessed and any(map(_is_shipped_path, _paths(config))):
        return config.invocation_params.dir
    return config.rootpath


def _paths(config: pytest.Config) -> list[Path]:
    return [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]


def _is_shipped_path(path: Path) -> bool:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return False
    return path.exists() and path.resolve().is_relative_to(Path(spec.origin).resolve().parent)
