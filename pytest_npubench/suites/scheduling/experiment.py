"""What the experiments of the scheduling suite have in common: a case for each load, for the profile's rounds, and what
its detail says of the rate and the limits that it was held to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.suites.scheduling.plan import ServingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTo:
    """Where rate and limits are from, and the calibration that they follow from; None where the file states both."""

    rate: str
    limits: str
    in_words: str
    full_rate_per_s: float | None = None
    decode_step_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingDetail:
    """What a case says of itself for reports. held_to is None where nothing arrives at a rate."""

    held_to: HeldTo | None = None


class LoadExperiment:
    """The part of a CaseKind that most experiments share. `dense` says on which of the models it is about."""

    suite = "scheduling"
    dense = False

    def axes(self, plan: ServingPlan) -> Iterable[Axes]:
        """One case for each load of a model that the experiment is about."""
        if plan.shape.is_dense is not self.dense:
            return ()
        return tuple((("workload", load.workload), ("rate", load.rate_name)) for load in plan.loads)

    def settled(self, case: Case, plan: ServingPlan, measured: Measured) -> bool:
        """min_rounds are what an experiment was planned with; more tell it nothing that budget is kept for."""
        return True
