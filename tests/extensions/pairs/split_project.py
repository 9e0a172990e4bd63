"""Small hardware files with [partition] and [offload], and pytest on them in a process of its own."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from additions.third_party import distribution
from suite_folder import PYTEST, SuiteFolder, SuiteRun

MARK = "NPUBENCH_SPLIT_TEST"
PARTITION = """
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


STRATEGY = Thirds()
"""


@dataclass(frozen=True)
class SplitProject:
    path: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def hardware(self, name: str, *, offload: str | None = None, **changes: Any) -> None:
        """A hardware file; `offload` lists the experiments of that suite."""
        table = {
            "pair": "host",
            "model": "tiny-split",
            "standard_sizes": [16, 64],
            "tile": 8,
            "decode_shares": [0.25, 0.5, 0.75],
            "experiments": '["gpu_linear"]',
            "lengths": [20],
            "num_rounds": 2,
        }
        text = PARTITION.format(**{**table, **changes}) + (OFFLOAD.format(experiments=offload) if offload else "")
        SuiteFolder(self.path).hardware(name, text)

    def run(self, *suites: str, plugin: str = "", cores: set[int] | None = None) -> SuiteRun:
        """A run in a new journal, of the partition suite unless others are named. `cores` are the processors
        that it may use, `plugin` is more code for the plugin of the tests."""
        folder = SuiteFolder(self.path)
        (self.path / "journal.jsonl").unlink(missing_ok=True)
        first, *further = suites or ("partition",)
        options = (*(f"suites/{suite}" for suite in further), "-k", "split", "--npubench-accept")
        options += folder.plugin("own_parts", PLUGIN + plugin)
        points = {"pytest_npubench.strategies": {"thirds": "own_parts:STRATEGY"}}
        distribution(self.path, "own-parts", {}, points)
        return folder.run(first, *options, pytest=_pytest_on(cores), env={MARK: self.mark})

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


def _pytest_on(cores: set[int] | None) -> Sequence[str]:
    """pytest on these processors: it pins itself before it starts, since a hook of ours would fork with jax loaded."""
    if cores is None:
        return PYTEST
    pinned = f"import os, sys, pytest; os.sched_setaffinity(0, {sorted(cores)}); sys.exit(pytest.console_main())"
    return [sys.executable, "-c", pinned]
