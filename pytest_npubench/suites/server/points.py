"""What a server campaign measures: a block of requests of one load, a sweep over rates; and what it asks."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.campaign.points import VisitedOnce
from pytest_npubench.suites.server.spec import ServerLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint(VisitedOnce):
    """A block of requests that arrive at the load's rate, whether or not others were answered."""

    load: ServerLoad

    @property
    def name(self) -> str:
        return f"{self.load.workload}@{self.load.rate_name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint(VisitedOnce):
    """Blocks of a workload at rates that are chosen as they go (sweep.py)."""

    workload: str

    @property
    def name(self) -> str:
        return f"{self.workload}/sweep"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPoint(VisitedOnce):
    """The server's answers to fixed prompts (asking.py): asked in the first round alone."""

    @property
    def name(self) -> str:
        return "answers"


ServerPoint = LoadPoint | SweepPoint | AnswerPoint
