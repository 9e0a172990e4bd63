"""Starting a run or a command so that it can be killed with all that it started, and waiting for its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from forked_python import KILLED
from plugin.project import Project

from .kill_points import POINTS, KillPoint

TIMEOUT_S = 120
SLEEP_S = "0.0005"  # of each batch on the fake device, so that rounds have their share of the time
OUTPUT = "output.txt"


@dataclass
class Started:
    """A process that leads a group of its own."""

    process: subprocess.Popen[bytes]
    started_s: float
    output: Path

    def is_running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """SIGKILL to it and all that it started; harmless where it has ended."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:  # it has ended, or has not come to lead its group yet
            self.process.kill()

    def wait(self) -> int:
        """Exit status, negative the signal that ended it."""
        return self.process.wait(TIMEOUT_S)

    def said(self) -> str:
        return self.output.read_text(errors="replace")


def fork(project: Project, command: Sequence[str], point: KillPoint | None = None, name: str = "") -> Started:
    """Run `pytest ...` or `npubench ...` in a forked process with kill points. `name` keeps two outputs apart."""
    return _start(project, [*KILLED, json.dumps(point), *command], f"{name}{OUTPUT}")


def fresh(project: Project, command: Sequence[str]) -> Started:
    """The same as a user starts it."""
    module = {"pytest": "pytest", "npubench": "pytest_npubench.cli"}[command[0]]
    return _start(project, [sys.executable, "-m", module, *command[1:]], OUTPUT)


def _start(project: Project, command: Sequence[str], output: str) -> Started:
    started_s = time.monotonic()
    path = project.root / output
    environment = project.environment({"FAKE_SLEEP_S": SLEEP_S})
    with path.open("wb") as stream:
        process = subprocess.Popen(
            command, cwd=project.root, env=environment, stdout=stream, stderr=stream, start_new_session=True
        )
    return Started(process, started_s, path)


def passed_points(project: Project) -> dict[str, int]:
    """Kind of kill point -> how often the last process with kill points that ended by itself passed one."""
    return dict(json.loads((project.root / POINTS).read_text()))
