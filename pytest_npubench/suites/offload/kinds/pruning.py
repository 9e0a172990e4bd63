"""How many outliers may be dropped or missed: error against channels and layers pruned, and against a stale hot list.

Computed from seeded tensors, without a device. The case fails where dropping every outlier does not cost accuracy: then
the sweep measures nothing. A relative error here is no model's accuracy.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.offload.pruning import (
    MissOutcome,
    PruningOutcome,
    make_layers,
    miss_rates,
    prune_channels,
    prune_layers,
)
from pytest_npubench.offload.shadow import ShadowSettings
from pytest_npubench.suites.offload.experiment import OffloadExperiment
from pytest_npubench.suites.offload.plan import OffloadPlan
from pytest_npubench.suites.offload.points import VisitPoint
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

FRACTIONS = (0.0, 0.25, 0.5, 0.75, 0.85, 1.0)
NUM_OUTLIERS, NUM_LAYERS = 8, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PruningDetail:
    """By what is left out: outlier channels, layers, and hot channels that moved."""

    channels: tuple[PruningOutcome, ...]
    layers: tuple[PruningOutcome, ...]
    missed: tuple[MissOutcome, ...]
    published: str = "llm.npu, section 3.3: 85 % of layers pruned"


class PruningKind(OffloadExperiment):
    name = "pruning"

    def points(self, case: Case, plan: OffloadPlan) -> tuple[VisitPoint, ...]:
        """Nothing is timed."""
        return ()

    def judge(self, case: Case, plan: OffloadPlan, measured: Measured) -> Judgement:
        settings = plan.experiment
        assert isinstance(settings, ShadowSettings)
        tensor = settings.case(NUM_OUTLIERS)
        channels = prune_channels(tensor, FRACTIONS)
        layers = prune_layers(make_layers(tensor, NUM_LAYERS), FRACTIONS)
        missed = miss_rates(tensor, FRACTIONS)
        kept, dropped = channels[0].relative_error, channels[-1].relative_error
        return Judgement(
            verdict=judge_gates((Gate(metric="error, all kept / all dropped", value=kept / dropped, limit=1.0),)),
            what=f"{NUM_OUTLIERS} outlier channels, {NUM_LAYERS} layers: error by what is left out",
            metrics=(
                Metric(name="kept_error", unit="", value=kept, gate="none"),
                Metric(name="dropped_error", unit="", value=dropped, gate="none"),
            ),
            detail=PruningDetail(channels=channels, layers=layers, missed=missed),
        )


KIND = PruningKind()
