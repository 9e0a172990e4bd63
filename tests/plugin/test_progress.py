"""The line that a person sees on a terminal while a campaign runs, and its absence anywhere else."""

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress

from pytest_npubench.plugin import progress

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


class Reporter:
    """The part of pytest's terminal reporter that a heartbeat needs, off a terminal."""

    isatty = False

    def __init__(self) -> None:
        self.lines: list[str] = []

    def ensure_newline(self) -> None:
        """Nothing to end."""

    def flush(self) -> None:
        """Nothing is held back."""

    def write_line(self, line: str) -> None:
        self.lines.append(line)


class Config:
    def __init__(self, reporter: Reporter) -> None:
        self.pluginmanager = self
        self._plugins = {"terminalreporter": reporter}

    def getplugin(self, name: str) -> object:
        return self._plugins.get(name)

    def get_verbosity(self) -> int:
        return 0


def test_off_a_terminal_a_line_a_minute_says_how_far_it_is(monkeypatch):
    now_s = [1000.0]
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setattr(progress, "monotonic", lambda: now_s[0])
    reporter = Reporter()
    shown = progress.progress_for(Config(reporter), lambda: (12, 58), lambda: 0.0)
    shown.stage("cpu-tiny-b1", "warming up")
    for _ in range(300):
        now_s[0] += 1
        shown.sample()
    assert reporter.lines == [
        f"npubench: 12 of 58 cases, cpu-tiny-b1: warming up, {minute}:00 elapsed" for minute in (1, 2, 3, 4, 5)
    ]


def test_off_a_terminal_a_run_that_waits_says_so_at_once(monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setattr(progress, "monotonic", lambda: 1000.0)
    reporter = Reporter()
    shown = progress.progress_for(Config(reporter), lambda: (0, 1), lambda: 0.0)
    shown.waits("cpu-tiny-b1", "cpu:0 is in use")
    shown.stage("cpu-tiny-b1", "warming up")
    assert reporter.lines == ["npubench: 0 of 1 cases, cpu-tiny-b1: cpu:0 is in use, 0:00 elapsed"]


def test_a_pipe_and_a_quiet_terminal_show_no_line_that_is_redrawn(project):
    project.fake()
    assert "cases |" not in project.run("-k", "fake and bucket16").stdout.str()
    status, text = run_on_a_terminal(project, "-k", "fake and bucket16", "-qq")
    assert status == 0
    assert "cases |" not in text
