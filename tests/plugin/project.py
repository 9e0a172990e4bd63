"""A user's project in a folder of its own, and pytest on it in a process of its own.

It holds the bucket suite's own files, one small hardware file, a workload and a conftest.py: nothing of this checkout's
configuration. The temporary folder is the project's too, so its device locks meet nobody else's.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.store.journal import Journal, read_journal

SUITE = Path(__file__).parents[2] / "suites" / "buckets"
CANARY = "test_canary.py"
FAKE = Path(__file__).parent / "fake_device.py"
TIMEOUT_S = 300
NUM_TRIES = 3
NEURON_LS = [{"neuron_device": 0, "nc_count": 2, "memory_size": 34359738368, "neuron_processes": []}]

HARDWARE = """
title = "{title}"
family = "{family}"
classes = {classes}
[probe]
match = ['{match}']
num_devices = {num_devices}
[buckets]
set = {buckets}
source = "the test's own"
[models]
default = ["mini-llama"]
dtype = "fp32"
batch_sizes = [2]
[limits]
case_error = {case_error}
mean_error = {mean_error}
"""
PROFILE = """
[profile.{name}]
workloads = {workloads}
num_draws = 2
min_rounds = {min_rounds}
max_rounds = {max_rounds}
budget_s = 0.1
profile_output_tokens = 9
"""
SHAPES = """
from pytest_npubench.engines.shapes import DecoderShape


def pytest_npubench_shapes():
    return [
        DecoderShape(
            name="mini-llama", source="the test's own", vocab_size=64, hidden=32, num_layers=2, num_heads=4,
            num_kv_heads=2, head_dim=8, intermediate=64, rope_theta=10000.0, rms_eps=1e-5, tied_embeddings=True,
        )
    ]
"""
OWN_HARDWARE = """
from pytest_npubench.plugin import session

session.known_folders = list
"""
"""Without the shipped hardware files, whose 600 cases take a run as long to collect as its own to measure."""
FAKE_CONFTEST = """
import dataclasses

import fake_device


def pytest_npubench_backends():
    return [fake_device.install({install})]

"""
LENGTHS = "input_tokens,output_tokens\n" + "".join(
    f"{inputs},{outputs}\n" for inputs, outputs in ((5, 4), (9, 6), (14, 5), (20, 8), (27, 9), (33, 3), (40, 7))
)


@dataclass(frozen=True)
class Project:
    root: Path
    has_shipped: bool = False
    """Whether the shipped hardware files' cases are collected too."""

    def with_shipped(self) -> Project:
        path = self.root / "conftest.py"
        path.write_text(path.read_text(encoding="utf-8").replace(OWN_HARDWARE, ""), encoding="utf-8")
        return replace(self, has_shipped=True)

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def hardware(self, name: str, **changes: Any) -> None:
        """A hardware file that describes the host's processors unless `changes` say otherwise."""
        size = {"workloads": ["lengths.csv"], "min_rounds": 2, "max_rounds": 2}
        device = {
            "title": "the test's device",
            "family": "cpu",
            "classes": [],
            "match": ".*",
            "num_devices": 1,
            "buckets": [16, 32, 64],
            "case_error": 1.0,
            "mean_error": 1.0,
        }
        if unknown := changes.keys() - device.keys() - size.keys():
            raise KeyError(unknown)
        text = HARDWARE.format(**{**device, **changes})
        sizes = (PROFILE.format(name=profile, **{**size, **changes}) for profile in ("quick", "nightly", "full"))
        self.write(f"hw/{name}.toml", text + "".join(sizes))

    def fake(self, install: str = "", **changes: Any) -> None:
        """A hardware file `fake` for the fake accelerator, installed with the arguments in the text `install`."""
        self.hardware("fake", **{"family": "openvino", "classes": ["npu"], "match": "^Fake accelerator$", **changes})
        own = "" if self.has_shipped else OWN_HARDWARE
        self.write("conftest.py", own + FAKE_CONFTEST.format(install=install) + SHAPES)
        (self.root / CANARY).unlink(missing_ok=True)  # its kernels are programs of jax, which the fake does not run

    def in_front(self, code: str) -> None:
        """Put functions in front of conftest.py, for the arguments of `fake`."""
        self.write("conftest.py", "import dataclasses\nimport os\n" + code + (self.root / "conftest.py").read_text())

    def copy(self, root: Path) -> Project:
        """The project as it is now in another folder: journal, baselines and all."""
        shutil.copytree(self.root, root)
        return replace(self, root=root)

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> pytest.RunResult:
        started_s = time.monotonic()
        process = self.start(*arguments, env=env)
        try:
            output, errors = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
        duration_s = time.monotonic() - started_s
        return pytest.RunResult(process.returncode, output.splitlines(), errors.splitlines(), duration_s)

    def start(self, *arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [sys.executable, "-m", "pytest", *arguments]
        return subprocess.Popen(command, cwd=self.root, env=self.environment(env), **{**streams, **options})

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        temporary = self.root / "tmp"
        temporary.mkdir(exist_ok=True)
        return {
            **{name: text for name, text in os.environ.items() if not name.startswith("GITHUB_")},
            "TMPDIR": str(temporary),
            "PYTEST_ADDOPTS": "--npubench-hardware hw --npubench-other-load 1 -p no:hypothesispytest -p no:anyio",
            "COLUMNS": "400",
            "JAX_PLATFORMS": "cpu",  # whatever accelerator this machine has
            **(env or {}),
        }

    @property
    def journal_path(self) -> Path:
        return self.root / ".npubench" / "journal.jsonl"

    def engines(self) -> list[str]:
        """Of every fake engine so far whether its process was a run's "first" or measured suspects "again"."""
        return [line.split()[1] for line in (self.root / "engines.txt").read_text(encoding="utf-8").splitlines()]

    def journal(self) -> Journal:
        return read_journal(self.journal_path)

    def records(self, kind: str, session: int = -1) -> list[Mapping[str, Any]]:
        """The records of a kind of one session of the journal, the latest unless said otherwise."""
        return [record for record in self.journal().sessions[session].records if record["record"] == kind]

    def cases(self, session: int = -1) -> dict[str, Mapping[str, Any]]:
        """Case key -> case record of one session."""
        return {record["case"]: record for record in self.records("case", session)}

    def kinds(self) -> dict[str, str]:
        """Case key -> the kind of its verdict in the latest session."""
        return {case: record["verdict"]["kind"] for case, record in self.cases().items()}

    @property
    def baseline_path(self) -> Path:
        """The one file of baselines that there is."""
        (path,) = (self.root / "baselines").glob("*/*.json")
        return path

    def accepted(self) -> dict[str, Any]:
        """Case key -> its entry in the one file of baselines."""
        return dict(json.loads(self.baseline_path.read_text(encoding="utf-8"))["cases"])


@dataclass(frozen=True)
class Finished:
    """A project and its first run."""

    project: Project
    result: pytest.RunResult

    def records(self, kind: str) -> list[Mapping[str, Any]]:
        return self.project.records(kind, session=0)

    def cases(self) -> dict[str, Mapping[str, Any]]:
        return self.project.cases(session=0)


def make_project(root: Path) -> Project:
    """The real project: `mini` on the host's processors. Give it `fake()` for the fake one."""
    project = Project(root)
    for path in SUITE.glob("test_*.py"):
        shutil.copy(path, root)
    shutil.copy(FAKE, root)
    project.write("pytest.ini", "[pytest]\n")
    put_under_git(root)
    project.write("lengths.csv", LENGTHS)
    project.write("conftest.py", OWN_HARDWARE + SHAPES)
    project.hardware("mini")
    return project


def neuron_project(root: Path) -> tuple[Project, dict[str, str]]:
    """A project on a machine with two NeuronCores, and the environment in which a stand-in of neuron-ls has them."""
    project = make_project(root)
    project.hardware("trn", family="neuron", classes=["npu"], match="AWS Neuron device", num_devices=2)
    tool = project.write("bin/neuron-ls", f"#!{sys.executable}\nprint({json.dumps(NEURON_LS)!r})\n")
    tool.chmod(0o755)
    return project, {"PATH": f"{tool.parent}:/usr/bin:/bin"}


def summary(result: pytest.RunResult, outcome: str) -> dict[str, str]:
    """The tests of an outcome such as FAILED in pytest's short summary, in its order: node id -> the text behind it."""
    rows = [line.removeprefix(f"{outcome} ") for line in result.outlines if line.startswith(f"{outcome} ")]
    return {node: text for node, _, text in (row.partition(" - ") for row in rows)}


def failures(result: pytest.RunResult, outcome: str = "FAILED") -> dict[str, str]:
    """`summary` by the names of tests alone."""
    return {node.rpartition("::")[2]: text for node, text in summary(result, outcome).items()}


def skipped(result: pytest.RunResult) -> dict[str, int]:
    """Reason -> how many tests were skipped for it."""
    lines = [line for line in result.outlines if line.startswith("SKIPPED ")]
    return {line.split(": ", 1)[1]: int(line.partition("[")[2].partition("]")[0]) for line in lines}


def put_under_git(root: Path) -> None:
    """A repository with an empty commit: what is resumed has to be of a known one."""
    for words in ("init --quiet --initial-branch=main", "commit --quiet --allow-empty -m empty"):
        command = ["git", "-c", "user.name=a person", "-c", "user.email=person@localhost", *words.split()]
        subprocess.run(command, cwd=root, check=True)


def run_until(
    is_wanted: Callable[[pytest.RunResult], bool],
    project: Callable[[int], Project],
    *arguments: str,
    env: Mapping[str, str] | None = None,
) -> Finished:
    """A run of a project for each try, up to NUM_TRIES; the last one's end. What is really measured on processors that
    other tests load may be of no use, such as a step that takes no time. What is wrong is so each time."""
    for number in range(NUM_TRIES):
        tried = project(number)
        result = tried.run(*arguments, env=env)
        if is_wanted(result):
            break
    return Finished(project=tried, result=result)


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until the condition holds; fails where the process ends before."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def interrupt_after_a_round(project: Project, process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Wait for the second round in the journal, send the signal, and wait for the end."""
    path = project.journal_path
    wait_for(lambda: path.exists() and path.read_bytes().count(b'"record":"round"') > 1, process)
    process.send_signal(number)
