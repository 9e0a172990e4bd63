"""Rate and limits are frozen by the first acceptance: on the virtual clock, with every time constant times k.

A night here is a serving campaign on the cost model, judged as a run judges it, and accepted as a run accepts it.
"""

import itertools
from dataclasses import replace

import pytest

from pytest_npubench.campaign.kinds import case_kind
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.serving import bench as bench_module
from pytest_npubench.campaign.serving.decoding import DecodeSteps
from pytest_npubench.campaign.serving.held_to import frozen_calibrations
from pytest_npubench.campaign.serving.plan import ServingPlan
from pytest_npubench.campaign.watch import Watched
from pytest_npubench.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow
from pytest_npubench.plugin.campaigns import within_limits
from pytest_npubench.plugin.expansion import ExpandedCase
from pytest_npubench.serving_spec import LoadSpec
from pytest_npubench.store.acceptance import MetricResult
from pytest_npubench.store.baselines import Baselines, CaseResult
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.verdict import VerdictKind

from .conftest import serving_plan

KEY = FingerprintKey(
    accelerator="Virtual", device_class="two", driver="570.86", runtime="torch", compiler=None, power_policy=None
)
NEWER = replace(KEY, driver="580.12")


class Slowed:
    """An executor whose iterations all take `factor` times as long."""

    def __init__(self, executor, factor):
        self._executor, self._factor = executor, factor

    def __getattr__(self, name):
        return getattr(self._executor, name)

    def run(self, plan):
        done = self._executor.run(plan)
        return replace(done, duration_s=done.duration_s * self._factor)


def modelled_decode_steps(executor, batch_size, context_tokens, num_steps):
    """campaign.serving.decoding's, told by the cost model in place of the machine's clock."""
    requests = tuple(range(1_000_000, 1_000_000 + batch_size))
    whole = LayerGroup(0, executor.num_layers)
    for request in requests:
        executor.begin(request, context_tokens, num_steps + 1)
        row = PrefillRow(request, 0, context_tokens)
        executor.run(IterationPlan(passes=(LayerPass(whole, (row,)),), finishing=(request,)))
    outcomes = [executor.run(IterationPlan(decode=requests, passes=(LayerPass(whole),))) for _ in range(num_steps)]
    for request in requests:
        executor.end(request)
    return DecodeSteps(
        step_s=tuple(done.duration_s for done in outcomes),
        expert_activations=tuple(done.expert_activations for done in outcomes),
    )


def plan_of(*, num_requests=30, **load) -> ServingPlan:
    """The hardware states neither rate nor limits, as the files of devices that nobody has measured."""
    plan = serving_plan(policies=("chunked", "layered", "continuous"), num_requests=num_requests)
    one = LoadSpec(model=plan.model, workload="layered-arxiv", **(load or {"utilisation": 0.7}))
    return replace(plan, serving=replace(plan.serving, loads=(one,)), spec=replace(plan.spec, slos=()))


@pytest.fixture
def device(monkeypatch, make_bench):
    """Nights on a device that takes `factor` times as long for everything."""
    made = bench_module._torch_executor
    monkeypatch.setattr(bench_module, "decode_steps", modelled_decode_steps)

    class Device:
        def __init__(self, directory):
            self.directory, self.numbers = directory, itertools.count(1)

        def campaign(self, plan, factor, kinds, *, frozen=None, earlier=()):
            """A loaded bench, its cases, and two rounds."""
            monkeypatch.setattr(
                bench_module, "_torch_executor", lambda plan, device: Slowed(made(plan, device), factor)
            )
            cases = [
                ExpandedCase(case=plan.case("scheduling", kind, axes), plan=plan, kind=case_kind(kind))
                for kind in kinds
                for axes in case_kind(kind).axes(plan)
            ]
            points = list(dict.fromkeys(point for one in cases for point in one.kind.points(one.case, plan)))
            bench, failures = make_bench(plan, points, earlier, frozen)
            assert failures == {}
            measured = Measured()
            for index in range(2):
                row = {}
                for point in points:
                    bench._executor._executor._iteration = 0
                    row |= bench.sample(point, index)
                measured.add(row, Watched())
            return cases, measured

        def night(self, plan, factor=1.0, *, kinds=("policy",), key=KEY, accept=False, across=()):
            """Judgements by case key."""
            baselines = Baselines.load(self.directory, missing_ok=True)
            known = frozen_calibrations(baselines, plan, key, across)
            frozen = {workload: one.calibration for workload, one in known.items()}
            cases, measured = self.campaign(plan, factor, kinds, frozen=frozen)
            judged = {one.case.key: within_limits(one, measured, known) for one in cases}
            number = next(self.numbers)
            if accept:
                results = [_result(one, judged[one.case.key]) for one in cases]
                baselines.accept(
                    results, session=f"night{number}", key=key, accepted_at=f"2026-01-{number:02}T12:00:00+00:00"
                )
            return judged

    return Device


def _result(expanded, judgement):
    metrics = tuple(
        MetricResult(
            name=metric.name,
            unit=metric.unit,
            better=metric.better,
            processes=metric.processes,
            gate=metric.gate,
            margin=metric.margin,
        )
        for metric in judgement.metrics
        if metric.gate != "none"
    )
    return CaseResult(
        hardware="virtual",
        case=expanded.case.key,
        digest=expanded.digest,
        metrics=metrics,
        frozen=judgement.frozen,
    )


def of_policy(judged, policy):
    return next(judgement for case, judgement in judged.items() if f"-{policy}-layered-arxiv" in case)


@pytest.mark.parametrize("factor", [1, 2, 4])
def test_without_a_baseline_the_gate_is_scale_free(device, tmp_path, factor):
    """What the first night cannot know: limits and rate are the device's own, at any speed."""
    judged = device(tmp_path / "b").night(plan_of(), factor)
    for policy in ("chunked", "layered"):
        found = of_policy(judged, policy)
        assert found.verdict.kind is VerdictKind.PASSED
        assert found.detail["held_to"]["rate"] == found.detail["held_to"]["limits"] == "measured in this campaign"


def test_a_device_that_became_slower_fails_and_one_that_did_not_stays_green(device, tmp_path):
    nights, plan = device(tmp_path / "b"), plan_of()
    first = of_policy(nights.night(plan, accept=True), "chunked")
    same = of_policy(nights.night(plan), "chunked")
    assert same.verdict.kind is VerdictKind.PASSED
    assert same.detail["held_to"]["rate"] == "frozen on 2026-01-01 in night1"
    assert same.frozen == first.frozen
    slow = nights.night(plan, 4)
    for policy in ("chunked", "layered"):
        found = of_policy(slow, policy)
        assert found.verdict.kind is VerdictKind.FAILED
        assert "requests that miss the SLO" in found.verdict.reason
        assert found.verdict.reason.endswith("; rate and limits frozen on 2026-01-01 in night1")
        assert found.detail["rate_per_s"] == first.detail["rate_per_s"]
        assert found.detail["slo"] == first.detail["slo"]
    assert of_policy(slow, "continuous").verdict.kind is VerdictKind.PASSED  # not meant to keep it


def test_a_slower_night_that_is_accepted_moves_nothing(device, tmp_path):
    nights, plan = device(tmp_path / "b"), plan_of()
    first = of_policy(nights.night(plan, accept=True), "chunked")
    nights.night(plan, 1.2, accept=True)
    assert of_policy(nights.night(plan, 1.2), "chunked").frozen == first.frozen
