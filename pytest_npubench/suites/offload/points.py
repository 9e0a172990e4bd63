"""A visit of one arm under one setting, and the samples that the rounds left of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured, VisitedOnce
from pytest_npubench.campaign.paired_rounds import whole_rounds
from pytest_npubench.offload.summaries import Samples
from pytest_npubench.offload.units import OffloadPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitPoint(VisitedOnce):
    """campaign.protocol.CampaignPoint of an offload point; visited once a round, so that rounds are paired."""

    point: OffloadPoint

    @property
    def name(self) -> str:
        return self.point.name


def samples_of(measured: Measured, points: Sequence[VisitPoint]) -> Samples:
    """By point and metric, one value a round that visited them all. Raises MeasurementError with the reason where a
    point failed, and where there is no such round."""
    rounds = whole_rounds(measured, points).rounds
    found: dict[str, Mapping[str, Sequence[float]]] = {}
    for point in points:
        metrics = [key for key in rounds[0] if key.rpartition("/")[0] == point.name]
        found[point.name] = {key.removeprefix(f"{point.name}/"): [row[key][0] for row in rounds] for key in metrics}
    return found
