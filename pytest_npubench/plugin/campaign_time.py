"""The time of a campaign, told apart from that of the case that waited for it.

All cases of a campaign are measured when the first of them runs. That case has the time that is left: `--durations` has
a line for the campaign, JUnit's time of the test is without it, and its property npubench.campaign_s has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignTime:
    """How long a test waited for its campaign, seconds."""

    campaign: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CampaignDuration:
    """What pytest's --durations shows of a report: `duration` seconds, `when`, `nodeid`. It has no slots: plugins look
    for marks of theirs in the __dict__ of every report, as hypothesis does."""

    nodeid: str
    duration: float
    when: str = "campaign"


CAMPAIGN_TIME = pytest.StashKey[CampaignTime]()


def take_off(report: pytest.TestReport, time: CampaignTime) -> None:
    """Take a campaign's time off the report of the test's call, which tells it by itself, across processes too."""
    report.duration = max(0.0, report.duration - time.seconds)
    report.npubench_campaign = (time.campaign, time.seconds)  # type: ignore[attr-defined]


def show(reporter: Any, report: pytest.TestReport) -> None:
    """Give --durations the campaign that a report tells. The reports of no name are those that no summary counts."""
    if reporter is not None and (campaign_time := getattr(report, "npubench_campaign", None)):
        campaign, seconds = campaign_time
        reporter.stats.setdefault("", []).append(CampaignDuration(nodeid=campaign, duration=seconds))
