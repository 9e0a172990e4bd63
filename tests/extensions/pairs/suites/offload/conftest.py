"""A plan for each experiment, scripted samples, and a pair of units whose figures are made up. Nothing is measured."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import UnitLostError
from pytest_npubench.extensions.pairs.offload.replay import ReplayVisit
from pytest_npubench.extensions.pairs.offload.units import Figures, OffloadPoint
from pytest_npubench.extensions.pairs.suites.offload import SUITE
from pytest_npubench.extensions.pairs.suites.offload.plan import OffloadPlan, Settings
from pytest_npubench.extensions.pairs.suites.offload.spec import OffloadSize, OffloadSpec
from pytest_npubench.suites.hardware_files import load_all

SPEC = load_all([default_directory()])["cpu"]
WORDS = "static unit on core 1 (process 7) was lost: killed by signal 9; its last words: the unit is on fire"


def offload_plan(experiment: Settings, *, pair: str = "host", num_rounds: int = 2) -> OffloadPlan:
    size = OffloadSize(
        name="quick",
        experiments=SUITE.kinds,
        min_rounds=num_rounds,
        max_rounds=num_rounds,
        budget_s=1.0,
    )
    return OffloadPlan(spec=SPEC, offload=OffloadSpec(pair=pair, profiles=()), size=size, experiment=experiment)


def scripted(*rounds: Mapping[OffloadPoint, Figures]) -> Measured:
    """Rounds by point, as a journal keeps them."""
    measured = Measured()
    for row in rounds:
        columns = {point.name: figures.columns() for point, figures in row.items()}
        measured.rounds.append({f"{name}/{key}": tuple(own[key]) for name, own in columns.items() for key in own})
    return measured


def replay_figures(total_s: float, relative_error: float) -> ReplayVisit:
    return ReplayVisit(
        total_s=total_s, bubble_fraction=0.5, predicted_s=1e-3, stalled_s=0, relative_error=relative_error
    )


class FakeOffloadPair:
    """As OffloadPair from outside; every visit takes 1 ms more than the one before. dies_after: so many visits, then
    the unit is lost with WORDS, and closed from then on. fails: why loading fails."""

    def __init__(self, *, dies_after: int | None = None, fails: Exception | None = None) -> None:
        self.dies_after, self.fails = dies_after, fails
        self.visits: list[str] = []
        self.num_loads = self.num_closed = 0

    def load(self) -> None:
        self.num_loads += 1
        if self.fails is not None:
            raise self.fails

    def measure(self, name: str) -> ReplayVisit:
        if self.dies_after is not None and len(self.visits) > self.dies_after:
            raise UnitLostError("dynamic unit of the replay experiment on core 0 was closed")
        self.visits.append(name)
        if self.dies_after is not None and len(self.visits) > self.dies_after:
            raise UnitLostError(WORDS)
        return replay_figures(1e-3 * len(self.visits), 0.25)

    def close(self) -> None:
        self.num_closed += 1
