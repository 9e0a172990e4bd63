"""Rounds whose figures can be paired: those that visited every point of a comparison.

A resumed campaign tries again what failed before, so its earlier rounds lack that point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPoint
from pytest_npubench.errors import MeasurementError


def whole_rounds(measured: Measured, points: Sequence[CampaignPoint]) -> Measured:
    """The same with these rounds alone. Samples are named POINT/FIGURE.

    Raises MeasurementError with the reason where a point failed, and where no round visited them all.
    """
    for point in points:
        measured.check(point.name)
    names = {point.name for point in points}
    rounds = [row for row in measured.rounds if names <= {key.rpartition("/")[0] for key in row}]
    if not rounds:
        raise MeasurementError(f"no round visited all of {', '.join(sorted(names))}")
    return replace(measured, rounds=rounds)
