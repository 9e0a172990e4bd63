"""The command that compilers add to `npubench`."""

from __future__ import annotations

from pytest_npubench.cli.command import Command

PREFLIGHT = Command(
    name="preflight",
    about="compile each bucket for devices that are not here",
    module="pytest_npubench.extensions.compilers.cli.preflight",
    after="run",
)
