"""Expanding a test into its cases: hardware files x models x batch sizes x the kind's own axes, equal everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.errors import BrokenEntryError, ConfigError, NpubenchError
from pytest_npubench.plugin.items import ExpandedCase
from pytest_npubench.suites import case_kind, suite

if TYPE_CHECKING:
    from pytest_npubench.campaign.kind import CaseKind
    from pytest_npubench.campaign.protocol import CampaignPlan
    from pytest_npubench.suites.protocol import Suite


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
        found = suite(kind.suite)
        # a case has its suite's marker, its test may do without
        missing = () if found.name in marked else (found.name,)
        plans = [plan for plan in plans_of(found) if plan.includes(kind.name)]
        cases = [param for plan in plans for param in _params(found, plan, kind, missing)]
    except BrokenEntryError as error:  # of another distribution: an error of this test alone
        cases = [pytest.param(error, id="broken")]
    except ConfigError as error:  # the run's settings: no matter of this test's
        raise pytest.UsageError(str(error)) from None
    except NpubenchError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    metafunc.parametrize("npubench_case", cases, indirect=True)


def _params(of: Suite, plan: CampaignPlan, kind: CaseKind[Any], missing: Sequence[str]) -> Iterator[object]:
    """The cases of one plan, which share their marks: ten thousand of each would take as long as the cases."""
    marks = [getattr(pytest.mark, name) for name in dict.fromkeys((*plan.spec.markers, *missing))]
    kind = of.kind_for(plan, kind)
    for axes in kind.axes(plan):
        expanded = ExpandedCase(case=plan.case(of.name, kind.name, axes), plan=plan, kind=kind, suite=of)
        yield pytest.param(expanded, id=expanded.case.id, marks=marks)
