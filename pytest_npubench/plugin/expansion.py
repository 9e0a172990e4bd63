"""Expanding a test into its cases: hardware files x models x batch sizes x the kind's own axes, equal everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.campaign.aihub.kinds import kind_for
from pytest_npubench.campaign.kinds import case_kind
from pytest_npubench.campaign.kinds.protocol import CaseKind
from pytest_npubench.campaign.protocol import CampaignPlan
from pytest_npubench.case import Case
from pytest_npubench.errors import NpubenchError

if TYPE_CHECKING:
    from pytest_npubench.plugin.session import BenchSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandedCase:
    """A case with what it needs to be planned and judged; the parameter that a suite's test receives."""

    case: Case
    plan: CampaignPlan
    kind: CaseKind[Any]

    @property
    def digest(self) -> str:
        return self.case.digest(self.plan.settings)

    @property
    def limits(self) -> dict[str, float]:
        return dict(self.plan.limits)


def expand(metafunc: pytest.Metafunc, session: BenchSession) -> None:
    """Parametrise a test that carries npubench_cases(kind)."""
    marker = metafunc.definition.get_closest_marker("npubench_cases")
    assert marker is not None
    where = metafunc.definition.nodeid
    if len(marker.args) != 1 or marker.kwargs or "npubench_case" not in metafunc.fixturenames:
        raise pytest.UsageError(f"{where}: npubench_cases takes one kind, and its test the npubench_case fixture")
    try:
        kind = case_kind(marker.args[0])
        plans = [plan for plan in session.plans(kind.suite) if plan.includes(kind.name)]
        cases = [param for plan in plans for param in _params(plan, kind)]
    except NpubenchError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    metafunc.parametrize("npubench_case", cases, indirect=True)


def _params(plan: CampaignPlan, kind: CaseKind[Any]) -> Iterator[object]:
    """The cases of one plan, which share their marks: ten thousand of each would take as long as the cases."""
    marks = [getattr(pytest.mark, name) for name in plan.spec.markers]
    kind = kind_for(plan, kind)
    for axes in kind.axes(plan):
        expanded = ExpandedCase(case=plan.case(kind.suite, kind.name, axes), plan=plan, kind=kind)
        yield pytest.param(expanded, id=expanded.case.id, marks=marks)
