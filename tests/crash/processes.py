"""Starting a run or a command so that it can be killed with all that it started, and waiting for its end.

Forked from a server that has imported everything, a run takes a quarter of a second, and most of it is work of ours;
fresh, it takes one and a half, and most of it is Python's start.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plugin.project import Project

from .kill_points import KillPoint, install

TIMEOUT_S = 120
IMPORTED = [
    "numpy.random",
    "plotly.offline",
    "pytest",
    "pytest_npubench.cli.main",
    "pytest_npubench.plugin.session",
    "pytest_npubench.reports.html",
    "pytest_npubench.reports.terminal",
    "pytest_npubench.store.history.query",
    "pytest_npubench.store.history.upload",
    "scipy.special",
    "scipy.stats",
    "sqlalchemy.dialects.sqlite.pysqlite",
]
SLEEP_S = "0.0005"  # of each batch on the fake device, so that rounds have their share of the time
OUTPUT, POINTS = "output.txt", "points.json"

_FORKING = multiprocessing.get_context("forkserver")
_FORKING.set_forkserver_preload(IMPORTED)


@dataclass
class Started:
    """A process that leads a group of its own."""

    process: Any
    pid: int
    started_s: float
    output: Path

    def is_running(self) -> bool:
        if isinstance(self.process, subprocess.Popen):
            return self.process.poll() is None
        return bool(self.process.is_alive())

    def kill(self) -> None:
        """SIGKILL to it and all that it started; harmless where it has ended."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has ended, or has not come to lead its group yet
            self.process.kill()

    def wait(self) -> int:
        """Exit status, negative the signal that ended it."""
        if isinstance(self.process, subprocess.Popen):
            return int(self.process.wait(TIMEOUT_S))
        self.process.join(TIMEOUT_S)
        assert self.process.exitcode is not None, f"still running after {TIMEOUT_S} s: {self.said()}"
        return int(self.process.exitcode)

    def said(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""


def fork(project: Project, command: Sequence[str], point: KillPoint | None = None, name: str = "") -> Started:
    """Run `pytest ...` or `npubench ...` in a process that the server forks. `name` keeps two outputs apart."""
    started_s = time.monotonic()
    output = project.root / f"{name}{OUTPUT}"
    environment = project.environment({"FAKE_SLEEP_S": SLEEP_S})
    process = _FORKING.Process(target=_run, args=(project.root, environment, list(command), point, output))
    process.start()
    assert process.pid is not None
    return Started(process, process.pid, started_s, output)


def fresh(project: Project, command: Sequence[str]) -> Started:
    """The same as a user starts it."""
    started_s = time.monotonic()
    output = project.root / OUTPUT
    module = {"pytest": "pytest", "npubench": "pytest_npubench.cli"}[command[0]]
    environment = project.environment({"FAKE_SLEEP_S": SLEEP_S})
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-m", module, *command[1:]],
            cwd=project.root,
            env=environment,
            stdout=stream,
            stderr=stream,
            start_new_session=True,
        )
    return Started(process, process.pid, started_s, output)


def passed_points(project: Project) -> dict[str, int]:
    """Kind of kill point -> how often the last forked process that ended by itself passed one."""
    return dict(json.loads((project.root / POINTS).read_text()))


def _run(
    root: Path, environment: Mapping[str, str], command: Sequence[str], point: KillPoint | None, output: Path
) -> None:
    os.setsid()
    with output.open("wb") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    os.chdir(root)
    counts = install(root, point)
    status = _main(command)
    sys.stdout.flush()
    sys.stderr.flush()
    if point is None:
        (root / POINTS).write_text(json.dumps(counts))
    sys.exit(status)


def _main(command: Sequence[str]) -> int:
    if command[0] == "pytest":
        import pytest

        return int(pytest.main(list(command[1:])))
    from pytest_npubench.cli.main import main

    return main(command[1:])
