"""Small hardware files with [partition] and [offload], and pytest on them in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.store.journal import read_journal

ROOT = Path(__file__).resolve().parents[3]
TIMEOUT_S = 300
MARK = "NPUBENCH_SPLIT_TEST"
HARDWARE = """
title = "Two processors of the tests"
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
[partition]
pair = "{pair}"
models = ["{model}"]
standard_sizes = {standard_sizes}
tile = {tile}
decode_shares = {decode_shares}
prefill_shares = [0.5]
[partition.profile.quick]
experiments = {experiments}
lengths = {lengths}
min_rounds = {num_rounds}
max_rounds = {num_rounds}
budget_s = 100
"""
OFFLOAD = """
[offload]
pair = "host"
[offload.profile.quick]
experiments = {experiments}
min_rounds = 2
max_rounds = 2
budget_s = 5
"""
PROFILE = """
[profile.{name}]
workloads = ["azure-conv-sample"]
num_draws = 1
min_rounds = 2
max_rounds = 2
budget_s = 1
"""
PLUGIN = """
from pytest_npubench.extensions.pairs.partition import model_shapes
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Part, Split
from pytest_npubench.extensions.pairs.partition.model_shapes import OperatorShape

TINY = {
    "attention_q": (64, 64), "attention_k": (64, 64), "attention_v": (64, 64), "attention_qkv": (192, 64),
    "attention_output": (64, 64), "ffn_gate_up": (256, 64), "ffn_down": (64, 128),
}
SHAPES = {
    "tiny-split": TINY,
    "one-split": {"attention_q": (64, 64)},
    "huge-split": {"attention_q": (64, 64), "ffn_down": (10**6, 10**6)},
}
for model, shapes in SHAPES.items():
    model_shapes.OPERATOR_SHAPES[model] = tuple(
        OperatorShape(name=name, rows=rows, cols=cols) for name, (rows, cols) in shapes.items()
    )


class Thirds:
    name = "thirds"
    is_baseline = False

    def splits(self, matmul, options):
        first = matmul.rows // 3
        if matmul.tokens > 1:
            shares = ((GPU, 0, first), (NPU, first, matmul.rows - first))
            padded = {GPU: matmul.tokens, NPU: options.padded(matmul.tokens)[0]}
            parts = tuple(
                Part(
                    unit=unit, first_row=start, num_rows=rows, first_token=0, num_tokens=matmul.tokens,
                    padded_tokens=padded[unit],
                )
                for unit, start, rows in shares
            )
            yield Split(strategy=self.name, parts=parts)


def pytest_npubench_partition_strategies():
    return [STRATEGY]

STRATEGY = Thirds()
"""


@dataclass(frozen=True)
class Finished:
    """A run: its process, the case records of its journal by key, and the records of its rounds."""

    process: subprocess.CompletedProcess[str]
    cases: Mapping[str, Mapping[str, Any]]
    rounds: tuple[Mapping[str, Any], ...]

    def verdicts(self, part: str) -> set[tuple[str, str]]:
        """Kind and reason of every case whose key holds this."""
        found = {(r["verdict"]["kind"], r["verdict"]["reason"]) for key, r in self.cases.items() if part in key}
        assert found, f"no case {part}; there are {', '.join(self.cases) or 'none'}\n{self.process.stdout}"
        return found

    def assert_measured(self, part: str) -> None:
        """Whatever is thought of it: no accepted session is there to compare with."""
        kinds = {kind for kind, _ in self.verdicts(part)}
        assert kinds <= {"passed", "failed", "no-baseline"}, self.verdicts(part)

    def reason(self, part: str) -> str:
        """Of the one verdict of these cases, which is invalid."""
        ((kind, reason),) = self.verdicts(part)
        assert kind == "invalid", reason
        return reason


@dataclass(frozen=True)
class SplitProject:
    folder: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def hardware(self, name: str, *, offload: str | None = None, **changes: Any) -> None:
        """A hardware file; `offload` lists the experiments of that suite."""
        known = {
            "pair": "host",
            "model": "tiny-split",
            "standard_sizes": [16, 64],
            "tile": 8,
            "decode_shares": [0.25, 0.5, 0.75],
            "experiments": '["gpu_linear"]',
            "lengths": [20],
            "num_rounds": 2,
        }
        text = HARDWARE.format(**{**known, **changes}) + (OFFLOAD.format(experiments=offload) if offload else "")
        (self.folder / "hardware").mkdir(exist_ok=True)
        profiles = "".join(PROFILE.format(name=profile) for profile in ("quick", "nightly", "full"))
        (self.folder / "hardware" / f"{name}.toml").write_text(text + profiles, encoding="utf-8")

    def run(self, select: str, *suites: str, plugin: str = "", cores: set[int] | None = None) -> Finished:
        """`select` goes to -k; cores: the processors that the run may use; plugin: more for the plugin of the tests."""
        (self.folder / "own_parts.py").write_text(PLUGIN + plugin, encoding="utf-8")
        (self.folder / "tmp").mkdir(exist_ok=True)
        journal = self.folder / "journal.jsonl"
        journal.unlink(missing_ok=True)
        options = [f"--npubench-hardware={self.folder / 'hardware'}", f"--npubench-journal={journal}"]
        options += [f"--npubench-baselines={self.folder / 'none'}", "--npubench-accept", "--benchmark-disable"]
        options += ["-o", "npubench_other_load=1", "-p", "own_parts", "-p", "no:cacheprovider", "-q", "-k", select]
        process = subprocess.run(
            [*_pytest_on(cores), *(f"suites/{suite}" for suite in suites or ("partition",)), *options],
            cwd=ROOT,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "JAX_PLATFORMS": "cpu",
                "TMPDIR": str(self.folder / "tmp"),  # its device locks meet nobody else's
                "PYTHONPATH": f"{self.folder}{os.pathsep}{ROOT}",
                MARK: self.mark,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
        records = read_journal(journal).records if journal.exists() else ()
        return Finished(
            process=process,
            cases={record["case"]: record for record in records if record["record"] == "case"},
            rounds=tuple(record for record in records if record["record"] == "round"),
        )

    def processes(self) -> list[int]:
        """What still runs of its runs and their children, which inherit the mark."""
        wanted = f"{MARK}={self.mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                is_ours = wanted in (folder / "environ").read_bytes().split(b"\0")
                state = (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]
            except OSError:  # ended meanwhile, or another user's
                continue
            if is_ours and state != "Z":
                found.append(int(folder.name))
        return found


def need_two_cores() -> None:
    """Skips with the reason where there is no host pair."""
    for name in ("torch", "jax"):
        pytest.importorskip(name, reason=f"the host pair needs {name}")
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a pair of units needs 2 cores")


def _pytest_on(cores: set[int] | None) -> list[str]:
    """pytest on these processors: it pins itself before it starts, since a hook of ours would fork with jax loaded."""
    if cores is None:
        return [sys.executable, "-m", "pytest"]
    pinned = f"import os, sys, pytest; os.sched_setaffinity(0, {sorted(cores)}); sys.exit(pytest.console_main())"
    return [sys.executable, "-c", pinned]
