"""A suite's case as pytest carries it from expansion to its test: the parameter, and what is stashed on its item."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.errors import NpubenchError

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Device
    from pytest_npubench.campaign.kind import CaseKind
    from pytest_npubench.campaign.protocol import CampaignPlan, CampaignPoint
    from pytest_npubench.core.case import Case
    from pytest_npubench.engines.descriptor import EngineDescriptor
    from pytest_npubench.suites.protocol import Suite

DEVICES: pytest.StashKey[tuple[Device, ...]] = pytest.StashKey()
NODE_ID = pytest.StashKey[str]()  # without the device's number, so that a case is called the same on every machine


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
    found = callspec.params.get("npubench_case") if callspec else None
    return found if isinstance(found, ExpandedCase) else None
