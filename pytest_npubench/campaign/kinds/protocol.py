"""A kind of case: how it expands, which points it needs measured, and how it judges them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pytest_npubench.campaign.plan import Plan
from pytest_npubench.campaign.points import Measured, Point
from pytest_npubench.case import Case
from pytest_npubench.hardware import RunSize
from pytest_npubench.result import Judgement

Axes = tuple[tuple[str, int | str], ...]


class CaseKind(Protocol):
    name: str
    suite: str

    def axes(self, size: RunSize) -> Iterable[Axes]:
        """The kind's own parameters of each case, the same on every machine."""
        ...

    def points(self, case: Case, plan: Plan) -> tuple[Point, ...]:
        """What the campaign must measure for this case."""
        ...

    def judge(self, case: Case, plan: Plan, measured: Measured) -> Judgement:
        """The case's verdict. Raises MeasurementError where its points failed: the case is then invalid."""
        ...

    def settled(self, case: Case, plan: Plan, measured: Measured) -> bool:
        """Whether more rounds would tell this case nothing new."""
        ...
