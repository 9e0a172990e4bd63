"""A plan of three small buckets and two workloads, and measurements of it that add up from times a bucket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import trace_of

from pytest_npubench.backends import backend
from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import CacheState, CompileRecord
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint
from pytest_npubench.suites.hardware_files import load_hardware
from pytest_npubench.workloads import _registered as registered

HARDWARE = """
title = "A device of the tests"
family = "cpu"
[probe]
match = ['.*']
[buckets]
set = [16, 32, 64]
source = "the test's own"
[models]
default = ["tiny-llama"]
dtype = "fp32"
batch_sizes = [2]
[profile.quick]
workloads = ["short", "long"]
num_draws = 3
min_rounds = 2
max_rounds = 9
budget_s = 5
profile_output_tokens = 9
[profile.nightly]
workloads = ["short"]
num_draws = 3
min_rounds = 2
max_rounds = 9
budget_s = 5
[profile.full]
workloads = ["short"]
num_draws = 3
min_rounds = 2
max_rounds = 9
budget_s = 5
"""
LENGTHS = {
    "short": ((3, 4), (5, 9), (8, 2), (12, 4), (15, 6), (2, 1)),
    "long": ((10, 20), (18, 9), (25, 30), (40, 12), (50, 14), (33, 1)),
}
TTFT_S = {16: 0.010, 32: 0.018, 64: 0.037}
TBT_S = {16: 0.002, 32: 0.003, 64: 0.005}
MOVE_S = {32: 0.0007, 64: 0.0011}
KERNEL_S = 0.0015


@pytest.fixture(scope="package", autouse=True)
def workloads() -> Iterator[None]:
    """The workloads `short` and `long`, known to these tests alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name, lengths in LENGTHS.items():
            patch.setitem(registered, name, trace_of(name, lengths))
        yield


@pytest.fixture(scope="module")
def runtime() -> Any:
    """The processors of this machine, opened."""
    cpu = backend("cpu")
    return cpu.open(cpu.probe(timeout_s=60).devices, None)


@pytest.fixture
def plan(tmp_path: Path) -> BucketPlan:
    path = tmp_path / "device.toml"
    path.write_text(HARDWARE, encoding="utf-8")
    spec = load_hardware(path)
    return BucketPlan(
        spec=spec, size=spec.profile("quick"), model="tiny-llama", batch_size=2, case_error=0.10, mean_error=0.05
    )


def with_size(plan: BucketPlan, **changes: Any) -> BucketPlan:
    return replace(plan, size=replace(plan.size, **changes))


def cases(plan: BucketPlan, name: str) -> list[Case]:
    """All cases of a kind."""
    kind = case_kind(name, ("buckets",))
    return [plan.case(kind.suite, kind.name, axes) for axes in kind.axes(plan)]


def seconds(point: BucketPoint, buckets: Sequence[int]) -> float:
    """What a point takes, walked through step by step: prefills in ascending order, then all rows to the last token."""

    def bucket_of(tokens: int) -> int:
        return min(bucket for bucket in buckets if tokens <= bucket)

    if point.move:
        return MOVE_S[point.move[1]]
    if not point.requests:
        return KERNEL_S
    visited = sorted(item.input_tokens for item in point.requests)
    total = sum(TTFT_S[bucket_of(tokens)] for tokens in visited)
    for step in range(max(item.output_tokens for item in point.requests) - 1):
        longest = max(item.input_tokens + min(step + 1, item.output_tokens - 1) for item in point.requests)
        total += TBT_S[bucket_of(longest)]
        visited.append(longest)
    path = [bucket_of(tokens) for tokens in visited]
    for left, right in pairwise(path):
        total += sum(MOVE_S[bucket] for bucket in buckets if left < bucket <= right)
    return total


def measured(points: Sequence[BucketPoint], plan: BucketPlan, num_rounds: int = 4) -> Measured:
    """Rounds without any noise."""
    row = {point.name: (seconds(point, plan.buckets),) * 2 for point in points}
    binaries = [f"{phase}-m-b2-{bucket}" for bucket in plan.buckets for phase in ("prefill", "decode")]
    return Measured(
        rounds=[dict(row) for _ in range(num_rounds)],
        compiles=tuple(CompileRecord(name=name, compile_s=0.5, cache=CacheState.COLD) for name in binaries),
    )


def of_workload(plan, name):
    return next(case for case in cases(plan, "prediction") if case.axis("workload") == name)


def slowed(own: Measured, prefix: str, factor: float) -> Measured:
    rows = [
        {name: tuple(v * (factor if name.startswith(prefix) else 1) for v in values) for name, values in row.items()}
        for row in own.rounds
    ]
    return Measured(rounds=rows, compiles=own.compiles)


def noisy(points, plan, rng, num_rounds, noise=0.03, drift=0.0):
    """Every sample off by `noise`, and every round as a whole by `drift`."""
    rounds = []
    for level in np.exp(drift * rng.standard_normal(num_rounds)):
        rows = {}
        for point in points:
            factors = level * np.exp(noise * rng.standard_normal(2))
            rows[point.name] = tuple((seconds(point, plan.buckets) * factors).tolist())
        rounds.append(rows)
    return Measured(rounds=rounds)
