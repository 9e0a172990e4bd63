"""Canary kernels: cases of their own, measured in the rounds of the campaign, whatever its runtime can do."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.campaign import Campaign, CampaignSite
from pytest_npubench.campaign.protocol import Progress
from pytest_npubench.core.measurement import Run
from pytest_npubench.engines import canary_kernels
from pytest_npubench.engines.canary_kernels import KERNELS, CanaryKernels, Sizes
from pytest_npubench.errors import MeasurementError
from pytest_npubench.store.fingerprint import collect_host
from pytest_npubench.store.journal import JournalWriter, read_journal
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.buckets.bench import BucketBench
from pytest_npubench.verdict import VerdictKind

from .conftest import cases, measured, seconds

KIND = case_kind("canary")


@pytest.fixture
def small(monkeypatch):
    """Sizes that a test can afford."""
    monkeypatch.setattr(canary_kernels, "HOST_SIZES", Sizes(matmul_rows=16, matmul_dtype="float32", copy_bytes=4096))


@pytest.fixture
def campaign(tmp_path, plan):
    """campaign(runtime, points): on an engine that takes the times of conftest.py."""

    def run(requests):
        return Run(
            e2e_s=seconds(SimpleNamespace(move=None, requests=requests), plan.buckets),
            segments=(),
            moves=(),
        )

    def make(runtime, points):
        return Campaign(
            plan,
            points,
            site=CampaignSite(
                devices=(Device(family="fake", ordinal=0, name="Fake accelerator"),),
                runtime=runtime,
                fingerprint="f",
            ),
            make_bench=lambda runtime: BucketBench(
                runtime,
                plan,
                lambda runtime, plan: SimpleNamespace(
                    load=lambda buckets: None, run=run, declared=(), canaries=CanaryKernels(runtime), close=lambda: None
                ),
            ),
            settled=lambda measured: True,
            journal=JournalWriter.open(tmp_path / "journal.jsonl", host=collect_host(tmp_path), settings={}),
            earlier=None,
            progress=Progress(),
        )

    return make


def _points(plan):
    return [point for case in cases(plan, "canary") for point in KIND.points(case, plan)]


def test_one_case_a_kernel_and_no_lens(plan):
    found = cases(plan, "canary")
    assert [case.id.rpartition("-")[2] for case in found] == ["matmul", "copy", "dispatch"] == list(KERNELS)
    judgement = KIND.judge(found[0], plan, measured(_points(plan), plan))
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert judgement.predicted_s is judgement.error is None
    (metric,) = judgement.metrics
    assert (metric.name, metric.unit, metric.better, metric.gate) == ("kernel_s", "s", "lower", "ratio")


def test_a_visit_is_short(plan):
    """make bench must stay under its time: three kernels of 5 ms add 90 ms to a round at most."""
    assert sum(point.visits(0.005) * 0.005 for point in _points(plan)) <= 0.1


def test_kernels_are_measured_in_the_rounds_of_the_campaign_and_compile_ahead(plan, runtime, small, campaign, tmp_path):
    profiled = [plan.profile_point(point) for point in plan.profile_points((16,))]
    found = campaign(runtime, [*profiled, *_points(plan)]).measured()
    assert found.failures == {}
    assert found.num_late_compiles == 0
    names = {record.name for record in found.compiles}
    assert names == {f"canary-{kernel}" for kernel in KERNELS}
    for row in found.rounds:
        assert {f"canary/{kernel}" for kernel in KERNELS} < row.keys()
    for case in cases(plan, "canary"):
        judgement = KIND.judge(case, plan, found)
        assert judgement.measured_s > 0
        assert len(judgement.metrics[0].samples) >= 2 * len(found.rounds)
    rounds = [record for record in read_journal(tmp_path / "journal.jsonl").records if record["record"] == "round"]
    assert "canary/copy" in json.loads(json.dumps(rounds[0]["points"]))


def test_another_runtime_costs_the_canaries_alone(plan, campaign):
    """A runtime that is not one of jax: its canary cases are invalid with the reason, the others go on."""
    other = SimpleNamespace(compiles=[], num_process_compiles=0, devices=[object()])
    profiled = [plan.profile_point(point) for point in plan.profile_points((16,))]
    found = campaign(other, [*profiled, *_points(plan)]).measured()
    assert found.failures.keys() == {f"canary/{kernel}" for kernel in KERNELS}
    assert found.samples(profiled[0].name).samples_s
    with pytest.raises(MeasurementError, match="need a runtime of jax; its device is a object"):
        KIND.judge(cases(plan, "canary")[0], plan, found)


def test_a_runtime_without_devices_says_so():
    with pytest.raises(MeasurementError, match="names no devices"):
        CanaryKernels(SimpleNamespace()).load("matmul")


def test_kernels_do_what_they_are_called(runtime, small):
    """The binaries that are compiled, with numbers put in: a product, a copy, an addition."""
    compiled, given = {}, {}

    class Recorder:
        devices = runtime.devices

        def compile(self, name, function, *arguments, **options):
            compiled[name], given[name] = runtime.compile(name, function, *arguments, **options), arguments
            return compiled[name]

    kernels = CanaryKernels(Recorder())
    for kernel in KERNELS:
        kernels.load(kernel)
        before = runtime.num_process_compiles
        assert kernels.time(kernel) > 0
        assert kernels.time(kernel) > 0
        assert runtime.num_process_compiles == before
    assert all(len(np.unique(matrix)) > 200 for matrix in given["canary-matmul"]), "a constant draws too little power"
    numbers = np.random.default_rng(0).random((16, 16), np.float32)
    np.testing.assert_allclose(compiled["canary-matmul"](numbers, numbers), numbers @ numbers, rtol=1e-5)
    flat = np.arange(1024, dtype=np.float32)
    np.testing.assert_array_equal(compiled["canary-copy"](flat, np.zeros(1024, np.float32)), flat)
    np.testing.assert_array_equal(compiled["canary-dispatch"](flat[:8]), flat[:8] + 1)


def test_an_accelerator_computes_in_bf16_on_larger_buffers(runtime, monkeypatch):
    """Its sizes, made small; the host stands in for it."""
    size = canary_kernels.sizes("gpu")
    assert (size.matmul_rows, size.matmul_dtype, size.copy_bytes) == (8192, "bfloat16", 2**30)
    monkeypatch.setattr(canary_kernels, "HOST_SIZES", replace(size, matmul_rows=8, copy_bytes=64))
    kernels = CanaryKernels(runtime)
    for kernel in KERNELS:
        kernels.load(kernel)
        assert kernels.time(kernel) > 0


def test_dispatch_is_the_time_of_one_launch(runtime, small, monkeypatch):
    """64 launches in a made-up time of 0.64 s are 0.01 s each."""
    kernels = CanaryKernels(runtime)
    kernels.load("dispatch")
    ticks = iter([1.0, 1.64])
    monkeypatch.setattr(canary_kernels, "perf_counter", lambda: next(ticks))
    assert kernels.time("dispatch") == pytest.approx(0.01)
