"""A script of nights played through the entry points that a runner has: `npubench nightly run` out of a fresh checkout,
a bare git remote, and a person with a clone of the baselines branch. What they leave is collected, nothing is judged.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightly.runner import SCRIPT, TIMEOUT_S, Remote, Runner, git
from plugin.project import SHAPES, Project

from pytest_npubench.store.journal import read_journal

from .script import BUCKETS, DEVICES, FIRST, Night

HERE = Path(__file__).parent
CONFTEST = """
import scripted_device
from scripted_device import pytest_configure


def pytest_npubench_backends():
    return [scripted_device.install()]
"""
SELECT = ("test_profile.py", "--npubench-hardware=hw", "--npubench-other-load=1")
NOISE = {"night": 0.003, "case": 0.002, "process": 0.002}
"""Standard deviations, as shares of a time, between nights, of a case on a night, and between processes of a night."""
MODEL = "mini-llama"
SUITE = "buckets/profile/"


@dataclass(frozen=True, kw_only=True)
class Played:
    """What one runner left of one night: the status of `npubench nightly run`, what it printed, its sessions, and the
    latest record of each case.

    `on_branch` has the cases that the branch holds with a session of this runner's night, and how many sessions it
    holds of each in the file that tonight's went to.
    """

    night: Night
    number: int
    runner: str
    status: int
    output: str
    sessions: tuple[str, ...]
    records: Mapping[str, Mapping[str, Any]]
    on_branch: Mapping[str, int]
    took_s: float

    @property
    def kinds(self) -> dict[str, str]:
        return {case: record["verdict"]["kind"] for case, record in self.records.items()}


@dataclass(kw_only=True)
class Stage:
    """A remote and its runners, in `root`. `noise` multiplies every standard deviation of NOISE."""

    root: Path
    options: tuple[str, ...] = ()
    seed: int = 0
    noise: float = 1.0

    def __post_init__(self) -> None:
        self.remote = Remote.make(self.root, prepare)
        select = (*SELECT, *self.options)
        self.runners = {
            name: Runner(remote=self.remote, root=self.root / f"runner-{name}", select=select) for name in ("a", "b")
        }

    def play(self, nights: Sequence[Night]) -> Iterator[Played]:
        for number, night in enumerate(nights, start=1):
            yield from self._play(night, number)
            if night.resets:
                self.reset(night.resets)

    def _play(self, night: Night, number: int) -> Iterator[Played]:
        held = {name: self._sessions(name) for name in night.runners}
        started_s = time.monotonic()
        processes = {name: self._start(night, number, name) for name in night.runners}
        outputs = {name: self._wait(night, name, process) for name, process in processes.items()}
        branch = self._branch()
        for name in night.runners:
            known = self._sessions(name)
            yield Played(
                night=night,
                number=number,
                runner=name,
                status=processes[name].returncode,
                output=outputs[name],
                sessions=tuple(session for session in known if session not in held[name]),
                records={
                    case: one for session in known if session not in held[name] for case, one in known[session].items()
                },
                on_branch={
                    case: len(sessions)
                    for case, sessions in branch
                    if any(one.partition("@")[0] in known.keys() - held[name].keys() for one in sessions)
                },
                took_s=time.monotonic() - started_s,
            )

    def environment(self, night: Night, number: int, runner: str) -> dict[str, str]:
        tonight = {
            "seed": self.seed,
            "number": number,
            "runner": runner,
            "noise": {name: self.noise * sigma for name, sigma in NOISE.items()},
            "factors": dict(night.factors),
            "drivers": {device: night.drivers.get(device, FIRST) for device in DEVICES},
            "lost": night.lost,
            "dies": night.dies,
            "hot": night.hot,
            "disk_full": night.disk_full,
        }
        return {"SCRIPTED_NIGHT": json.dumps(tonight)}

    def _start(self, night: Night, number: int, name: str) -> subprocess.Popen[str]:
        runner = self.runners[name]
        runner.checkout()
        environment = self.environment(night, number, name) | ({"FAKE_SLEEP_S": "0.02"} if night.is_killed else {})
        across = tuple(f"--npubench-compare-across={part}" for part in night.across)
        own = ("--", *runner.select, *across)
        return runner.start("run", "--name", f"runner-{name}", *own, env=environment, start_new_session=True)

    def _wait(self, night: Night, name: str, process: subprocess.Popen[str]) -> str:
        try:
            if night.is_killed:
                self._wait_for_second_campaign(name, process)
                os.killpg(process.pid, signal.SIGKILL)
            return "".join(process.communicate(timeout=TIMEOUT_S))
        finally:
            process.kill()

    def _wait_for_second_campaign(self, name: str, process: subprocess.Popen[str]) -> None:
        """Until tonight's session has more cases than the first campaign; restoring may have shortened the journal."""
        held = self._sessions(name)
        deadline_s = time.monotonic() + TIMEOUT_S
        while not any(len(cases) > len(BUCKETS) for one, cases in self._sessions(name).items() if one not in held):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.1)

    def _sessions(self, name: str) -> dict[str, dict[str, Mapping[str, Any]]]:
        """Session -> short name of the case -> its record, of what the runner's state folder keeps, shelf and all."""
        state = self.runners[name].state
        paths = [path for path in (*sorted(state.shelf.glob("*.jsonl")), state.journal) if path.exists()]
        return {
            session.id: {short(one["case"]): one for one in session.records if one["record"] == "case"}
            for path in paths
            for session in read_journal(path).sessions
        }

    def _branch(self) -> list[tuple[str, list[str]]]:
        """Case and sessions of each entry on the branch, one for each key; nothing before it is there."""
        if not git(self.remote.path, "branch", "--list", "npubench-baselines"):
            return []
        folder = self.root / "branch"
        shutil.rmtree(folder, ignore_errors=True)
        return [
            (short(name), [session.session for session in case.sessions])
            for file in self.remote.baselines(folder).files
            for name, case in file.cases.items()
        ]

    def reset(self, resets: Mapping[str, str]) -> None:
        """What a person does whose change was meant."""
        clone = self.root / "person"
        shutil.rmtree(clone, ignore_errors=True)
        git(self.root, "clone", "--quiet", "--branch=npubench-baselines", str(self.remote.path), "person")
        for case, reason in resets.items():
            said = self.npubench("baseline", "reset", long(case), "--reason", reason, folder=clone)
            assert said.returncode == 0, said.stderr
        git(clone, "commit", "--quiet", "--all", "-m", "an intended change")
        git(clone, "push", "--quiet", "origin", "HEAD:npubench-baselines")

    def npubench(self, *arguments: str, folder: Path | None = None, **env: str) -> subprocess.CompletedProcess[str]:
        """A command of npubench, in a folder, as a person gives it."""
        command = [sys.executable, "-c", SCRIPT, *arguments]
        environment = {**os.environ, "COLUMNS": "200", **env}
        where = folder or self.root
        return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)


def prepare(project: Project) -> None:
    """The suite on two scripted devices, of which `near` runs two stacks."""
    batch_sizes = {"near": "[2, 4]", "far": "[2]"}
    for name, sizes in batch_sizes.items():
        asked = {"family": "openvino", "classes": ["npu"], "match": f"^Fake accelerator {name}$"}
        project.hardware(name, buckets=list(BUCKETS), **asked)
        path = project.root / "hw" / f"{name}.toml"
        path.write_text(path.read_text(encoding="utf-8").replace("batch_sizes = [2]", f"batch_sizes = {sizes}"))
    (project.root / "hw" / "mini.toml").unlink()
    for path in project.root.glob("test_*.py"):
        if path.name != "test_profile.py":
            path.unlink()
    shutil.copy(HERE / "scripted_device.py", project.root)
    project.write("conftest.py", CONFTEST + SHAPES)


def short(case: str) -> str:
    """buckets/profile/near-mini-llama-b2-bucket32 -> near-b2-bucket32"""
    return case.removeprefix(SUITE).replace(f"-{MODEL}", "")


def long(case: str) -> str:
    device, rest = case.split("-", 1)
    return f"{SUITE}{device}-{MODEL}-{rest}"
