"""A kind of case: how it expands, which points it needs measured, and how it judges them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from pytest_npubench.campaign.points import Measured
    from pytest_npubench.campaign.protocol import CampaignPoint
    from pytest_npubench.core.case import Axes, Case
    from pytest_npubench.verdict.result import Judgement

PlanT = TypeVar("PlanT", contravariant=True)


class CaseKind(Protocol[PlanT]):
    """Each suite has a plan of its own: Plan for buckets, ServingPlan for scheduling."""

    name: str
    suite: str

    def axes(self, plan: PlanT) -> Iterable[Axes]:
        """The kind's own parameters of each case, the same on every machine."""
        ...

    def points(self, case: Case, plan: PlanT) -> tuple[CampaignPoint, ...]:
        """What the campaign must measure for this case."""
        ...

    def judge(self, case: Case, plan: PlanT, measured: Measured) -> Judgement:
        """The case's verdict. Raises MeasurementError where its points failed: the case is then invalid."""
        ...

    def settled(self, case: Case, plan: PlanT, measured: Measured) -> bool:
        """Whether more rounds would tell this case nothing new."""
        ...
