"""LENS profiled on a real vLLM and judged on it: what it declares, what a campaign's points leave, what a case says.

Times are never held against a number: this is about what is measured, not how fast it is.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from small_decoders import small_decoder

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.rounds import measure_round
from pytest_npubench.engines import shapes
from pytest_npubench.extensions.vllm.bucket_service import start_bucket_engine
from pytest_npubench.extensions.vllm.process import PYTHON_VARIABLE, num_late_compiles
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import declared_in
from pytest_npubench.suites.hardware_files import load_hardware
from pytest_npubench.verdict import VerdictKind

HARDWARE = """
title = "A device of the tests"
family = "cpu"
[probe]
match = ['.*']
[buckets]
set = [64, 128, 256]
source = "the test's own"
[models]
default = ["test-dense"]
dtype = "fp32"
batch_sizes = [2]
"""
SIZE = """
[profile.{name}]
workloads = ["lens-sharegpt"]
num_draws = 1
min_rounds = 2
max_rounds = 2
budget_s = 5
profile_output_tokens = 17
"""
SHAPE = small_decoder("test-dense", vocab_size=512, head_dim=32, intermediate=128, tied_embeddings=False)
KINDS = ("profile", "steps", "prediction", "mean_error", "canary")


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> BucketPlan:
    path = tmp_path_factory.mktemp("hardware") / "device.toml"
    path.write_text(HARDWARE + "".join(SIZE.format(name=name) for name in ("quick", "nightly", "full")), "utf-8")
    spec = load_hardware(path)
    return BucketPlan(
        spec=spec,
        size=spec.profile("quick"),
        model=SHAPE.name,
        batch_size=2,
        case_error=0.05,
        mean_error=0.05,
        engine="vllm",
    )


@pytest.fixture(scope="module")
def measured(plan: BucketPlan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Measured]:
    """Three rounds of every point, as a campaign takes them, on an engine of its own."""
    if not os.environ.get(PYTHON_VARIABLE) and find_spec("vllm") is None:
        pytest.skip(f"vLLM is not installed here, and {PYTHON_VARIABLE} names no environment with it")
    folder: Path = tmp_path_factory.mktemp("models")
    points = {
        point: None
        for kind in map(case_kind, KINDS)
        for axes in kind.axes(plan)
        for point in kind.points(plan.case(kind.suite, kind.name, axes), plan)
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(shapes.SHAPES, SHAPE.name, SHAPE)
        patch.setenv("OMP_NUM_THREADS", "1")
        bench = BucketBench(None, plan, lambda runtime, plan: start_bucket_engine(plan, folder))  # type: ignore[arg-type]
        before = num_late_compiles()
        try:
            failures = bench.load(tuple(points), (), lambda text: None)
            for point in points:
                bench.warm_up(point)
            once = {point.name: 1e3 for point in points}
            rounds = [measure_round(tuple(points), once, bench.sample, index, lambda: None)[0] for index in range(3)]
            late = num_late_compiles() - before
            yield Measured(rounds=list(rounds), failures=dict(failures), num_late_compiles=late)
        finally:
            bench.close()


def test_every_point_is_measured_and_nothing_compiles_late(measured: Measured) -> None:
    assert measured.failures == {}
    assert measured.num_late_compiles == 0
    assert all(
        math.isfinite(value) and value > 0 for row in measured.rounds for times in row.values() for value in times
    )


def test_a_cpu_declares_no_buckets(plan: BucketPlan, measured: Measured) -> None:
    assert declared_in(measured.rounds) == ()
    for name in ("profile", "steps", "prediction"):
        kind = case_kind(name)
        for axes in kind.axes(plan):
            case = plan.case(kind.suite, name, axes)
            detail = kind.judge(case, plan, measured).detail
            assert detail.continuous is True
            assert getattr(detail, "declared", ()) == ()


def test_a_prediction_is_judged_by_the_limit_of_any_device(plan: BucketPlan, measured: Measured) -> None:
    kind = case_kind("prediction")
    (axes,) = kind.axes(plan)
    judgement = kind.judge(plan.case(kind.suite, kind.name, axes), plan, measured)
    over = judgement.detail.gate_error > plan.case_error
    sure = VerdictKind.FAILED if over else VerdictKind.PASSED
    assert judgement.verdict.kind in (sure, VerdictKind.INCONCLUSIVE)
    assert judgement.predicted_s is not None
    assert judgement.predicted_s > 0
    passed = judgement.verdict.kind is VerdictKind.PASSED
    assert ("vLLM has no buckets here" in judgement.verdict.reason) is not passed


def test_canaries_ran_in_vllms_process(plan: BucketPlan, measured: Measured) -> None:
    kind = case_kind("canary")
    for axes in kind.axes(plan):
        judgement = kind.judge(plan.case(kind.suite, kind.name, axes), plan, measured)
        assert judgement.verdict.kind is VerdictKind.PASSED
        assert judgement.measured_s is not None
        assert judgement.measured_s > 0
