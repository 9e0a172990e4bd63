"""The line that a person sees on a terminal while a campaign runs, and its absence anywhere else."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress

from .project import Project


def run_on_a_terminal(project: Project, *arguments: str) -> tuple[int, str]:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "pytest", *arguments]
    process = subprocess.Popen(command, cwd=project.root, env=project.environment(), stdout=theirs, stderr=theirs)
    os.close(theirs)
    output = b""
    with suppress(OSError):  # what Linux says of a terminal whose other end was closed
        while part := os.read(ours, 65536):
            output += part
    os.close(ours)
    return process.wait(), output.decode(errors="replace")


def test_a_terminal_shows_how_far_the_campaign_is(project):
    project.fake("sleep_s=0.002", min_rounds=3, max_rounds=3)
    status, text = run_on_a_terminal(project, "-k", "fake", "-p", "no:benchmark", "-W", "error")
    assert status == 0, text
    assert "npubench 0/8 cases | fake-mini-llama-b2 | compiling bucket 64" in text
    assert re.search(r"warming up \d+/\d+", text)
    assert re.search(r"round 2 of 3 to 3 \| sample \d+/\d+ \| at most 0:\d\d left", text)
    assert "8 passed" in text


def test_a_pipe_and_a_quiet_terminal_show_nothing(project):
    project.fake()
    assert "cases |" not in project.run("-k", "fake and bucket16").stdout.str()
    status, text = run_on_a_terminal(project, "-k", "fake and bucket16", "-qq")
    assert status == 0
    assert "cases |" not in text
