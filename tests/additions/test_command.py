"""A command from outside: a module and an entry point. One that cannot be had leaves the others as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from .third_party import distribution, fake_project, npubench

COMMAND = """
from pytest_npubench.cli.command import Command

PING = Command(name="ping", about="say whether anybody is there", module="npubench_ping", after="probe")


def add_parser(subparsers, about):
    parser = subparsers.add_parser("ping", help=about)
    parser.add_argument("host")
    parser.set_defaults(run=lambda arguments: print(f"{arguments.host} is there") or 3)
"""


@pytest.mark.parametrize("value", ["npubench_ping:PING", "npubench_gone:PING"])
def test_a_command_is_one_file_and_an_entry_point(tmp_path: Path, value: str) -> None:
    project = fake_project(tmp_path)
    points = {"pytest_npubench.commands": {"ping": value, "probe": "npubench_ping:PING"}}
    path = distribution(tmp_path / "outside", "npubench-ping", {"npubench_ping.py": COMMAND}, points)
    listed = npubench(project, "--help", path=path)
    words = [line.split()[0] for line in listed.stdout.splitlines() if line.startswith("    ")]
    called = npubench(project, "ping", "here", path=path)
    if value == "npubench_ping:PING":
        assert words[words.index("probe") + 1] == "ping"
        assert (called.returncode, called.stdout) == (3, "here is there\n")
    else:
        assert "ping" not in words
        assert called.returncode == 2
    assert listed.returncode == 0
