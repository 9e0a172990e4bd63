"""What an offload campaign measures, one arm under one setting, and the record that a visit leaves, by experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pytest_npubench.campaign.points import VisitedOnce
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.extensions.pairs.offload.chunk_graphs import ChunkFigures
from pytest_npubench.extensions.pairs.offload.factorial import FactorialFigures
from pytest_npubench.extensions.pairs.offload.replay import ReplayFigures
from pytest_npubench.extensions.pairs.offload.shadow import ShadowFigures
from pytest_npubench.extensions.pairs.offload.units import Figures, OffloadPoint


@dataclass(frozen=True, slots=True, kw_only=True)
class VisitPoint(VisitedOnce):
    """campaign.protocol.CampaignPoint of an offload point; visited once a round, so that rounds are paired."""

    point: OffloadPoint

    @property
    def name(self) -> str:
        return self.point.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkVisit(ChunkFigures, Visit):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowVisit(ShadowFigures, Visit):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayVisit(ReplayFigures, Visit):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorialVisit(FactorialFigures, Visit):
    pass


_VISITS: Mapping[type[Any], type[Visit]] = {
    ChunkFigures: ChunkVisit,
    ShadowFigures: ShadowVisit,
    ReplayFigures: ReplayVisit,
    FactorialFigures: FactorialVisit,
}


def visit_of(figures: Figures) -> Visit:
    """Returns the figures as a round keeps them."""
    return _VISITS[type(figures)](**asdict(figures))
