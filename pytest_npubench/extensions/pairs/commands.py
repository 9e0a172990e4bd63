"""The commands that pairs of units add to `npubench`."""

from __future__ import annotations

from pytest_npubench.cli.command import Command

PARTITION = Command(
    name="partition",
    about="profile a pair of compute units, and plan how a model's operators are split over it",
    module="pytest_npubench.extensions.pairs.cli.partition",
    after="load",
)
