"""Expanding a test into its cases: hardware files x models x batch sizes x the kind's own axes, equal everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.campaign.kind import CaseKind
from pytest_npubench.campaign.protocol import CampaignPlan, CampaignPoint
from pytest_npubench.case import Case
from pytest_npubench.engines.descriptor import EngineDescriptor
from pytest_npubench.errors import NpubenchError
from pytest_npubench.suites import case_kind, suite
from pytest_npubench.suites.protocol import Suite

if TYPE_CHECKING:
    from pytest_npubench.plugin.session import BenchSession


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


def expand(metafunc: pytest.Metafunc, session: BenchSession) -> None:
    """Parametrise a test that carries npubench_cases(kind)."""
    marker = metafunc.definition.get_closest_marker("npubench_cases")
    assert marker is not None
    where = metafunc.definition.nodeid
    if len(marker.args) != 1 or marker.kwargs or "npubench_case" not in metafunc.fixturenames:
        raise pytest.UsageError(f"{where}: npubench_cases takes one kind, and its test the npubench_case fixture")
    try:
        kind = case_kind(marker.args[0])
        found = suite(kind.suite)
        plans = [plan for plan in session.plans(found) if plan.includes(kind.name)]
        cases = [param for plan in plans for param in _params(found, plan, kind)]
    except NpubenchError as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    metafunc.parametrize("npubench_case", cases, indirect=True)


def _params(of: Suite, plan: CampaignPlan, kind: CaseKind[Any]) -> Iterator[object]:
    """The cases of one plan, which share their marks: ten thousand of each would take as long as the cases."""
    marks = [getattr(pytest.mark, name) for name in plan.spec.markers]
    kind = of.kind_for(plan, kind)
    for axes in kind.axes(plan):
        expanded = ExpandedCase(case=plan.case(of.name, kind.name, axes), plan=plan, kind=kind, suite=of)
        yield pytest.param(expanded, id=expanded.case.id, marks=marks)
