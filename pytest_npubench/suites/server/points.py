"""What a server campaign measures: a block of requests of one load; and what it asks without measuring."""

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
class AnswerPoint(VisitedOnce):
    """The server's answers to fixed prompts (asking.py): asked in the first round alone."""

    @property
    def name(self) -> str:
        return "answers"


ServerPoint = LoadPoint | AnswerPoint
