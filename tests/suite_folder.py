"""A folder with hardware files of its own, and the checkout's suites run on them in a process of pytest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pytest_npubench.store.journal import read_journal

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_S = 300
PYTEST = (sys.executable, "-m", "pytest")
DEVICE = """
title = "A small device of the tests"
family = "cpu"
[probe]
match = ['.*']
[buckets]
set = [16]
source = "the test's own"
[models]
default = ["tiny-llama"]
dtype = "fp32"
batch_sizes = [1]
"""
PROFILE = """
[profile.{name}]
workloads = ["azure-conv-sample"]
num_draws = 1
min_rounds = 2
max_rounds = 2
budget_s = 1
"""
SERVING = """
[serving]
models = {models}
dtype = {dtype}
max_batch_size = {max_batch_size}
kv_capacity_tokens = {kv_capacity_tokens}
tokens_per_iteration = 32
[[serving.load]]
model = {model}
workload = "layered-arxiv-div64"
utilisation = {utilisation}
[serving.profile.quick]
experiments = {experiments}
policies = {policies}
num_requests = {num_requests}
min_rounds = 2
max_rounds = 2
budget_s = 1
"""
Record = Mapping[str, Any]


def serving(model: str = "small-gpt-oss", **changes: object) -> str:
    """[serving] of a hardware file: one model under one load; `changes` are other entries of its tables."""
    table: dict[str, object] = {
        "models": [model],
        "dtype": "fp32",
        "max_batch_size": 8,
        "kv_capacity_tokens": 2048,
        "utilisation": 0.5,
        "experiments": ["expert_loads"],
        "policies": ["chunked"],
        "num_requests": 3,
    }
    assert changes.keys() <= table.keys()
    values = {"model": model, **table, **changes}
    return SERVING.format(**{name: json.dumps(value) for name, value in values.items()})


@dataclass(frozen=True)
class SuiteRun:
    """A run that is over: its process, and the records of its journal."""

    process: subprocess.CompletedProcess[str]
    records: tuple[Record, ...]

    def of_kind(self, kind: str) -> list[Record]:
        return [record for record in self.records if record["record"] == kind]

    @cached_property
    def cases(self) -> dict[str, Record]:
        """The latest record of each case, by its key."""
        return {record["case"]: record for record in self.of_kind("case")}

    def verdicts(self, part: str) -> set[tuple[str, str]]:
        """The verdicts and reasons of the cases whose key holds this part."""
        verdicts = [record["verdict"] for key, record in self.cases.items() if part in key]
        assert verdicts, f"no case {part}; there are {', '.join(self.cases) or 'none'}\n{self.process.stdout}"
        return {(verdict["kind"], verdict["reason"]) for verdict in verdicts}

    def assert_measured(self, part: str) -> None:
        """No accepted session is there to compare with, and nothing else is wrong."""
        assert {kind for kind, _ in self.verdicts(part)} <= {"passed", "failed", "no-baseline"}, self.verdicts(part)

    def reason(self, part: str) -> str:
        """The reason that all cases of this part share, which are invalid."""
        ((kind, reason),) = self.verdicts(part)
        assert kind == "invalid", reason
        return reason

    def assert_refused(self, message: str) -> None:
        """The run ended with a usage error before anything was measured."""
        assert self.process.returncode == 4, self.process.stdout
        assert message in self.process.stdout + self.process.stderr
        assert not self.cases


@dataclass(frozen=True)
class SuiteFolder:
    path: Path

    def hardware(self, name: str, text: str) -> None:
        """A hardware file: DEVICE, and this text behind it."""
        (self.path / "hardware").mkdir(exist_ok=True)
        profiles = "".join(PROFILE.format(name=profile) for profile in ("quick", "nightly", "full"))
        (self.path / "hardware" / f"{name}.toml").write_text(DEVICE + text + profiles, encoding="utf-8")

    def plugin(self, name: str, code: str) -> tuple[str, str]:
        """A plugin of pytest in this folder, and the option that loads it."""
        (self.path / f"{name}.py").write_text(code, encoding="utf-8")
        return "-p", name

    def run(
        self, suite: str, *options: str, pytest: Sequence[str] = PYTEST, env: Mapping[str, str] | None = None
    ) -> SuiteRun:
        """The suite's tests with this folder's hardware files, journal and baselines."""
        journal, temporary = self.path / "journal.jsonl", self.path / "tmp"
        temporary.mkdir(exist_ok=True)  # the locks of devices lie there, and meet nobody else's
        process = subprocess.run(
            [
                *(*pytest, f"suites/{suite}", "-q", "-p", "no:cacheprovider", "--benchmark-disable"),
                *("-o", "npubench_other_load=1", f"--npubench-hardware={self.path / 'hardware'}"),
                *(f"--npubench-journal={journal}", f"--npubench-baselines={self.path / 'baselines'}", *options),
            ],
            cwd=ROOT,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",  # threads that spin are slow on a machine that does other work
                "OMP_WAIT_POLICY": "passive",
                "JAX_PLATFORMS": "cpu",
                "TMPDIR": str(temporary),
                "PYTHONPATH": os.pathsep.join(map(str, (self.path, ROOT, ROOT / "tests"))),
                **(env or {}),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        return SuiteRun(process=process, records=read_journal(journal).records if journal.exists() else ())
