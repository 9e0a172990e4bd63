"""The commands that planning adds to `npubench`."""

from __future__ import annotations

from pytest_npubench.cli.command import Command

SIMULATE = Command(
    name="simulate",
    about="simulate scheduling policies on a virtual clock",
    module="pytest_npubench.extensions.planning.cli.simulate",
    after="predict",
)
SEARCH = Command(
    name="search",
    about="find the cheapest setting that keeps an SLO, on a virtual clock",
    module="pytest_npubench.extensions.planning.cli.search",
    after="predict",
)
CALIBRATE = Command(
    name="calibrate",
    about="find out what an iteration of your own server costs",
    module="pytest_npubench.extensions.planning.cli.calibrate",
    after="predict",
)
