"""Rate and limits are frozen by the first acceptance: on the virtual clock, with every time constant times k.

A night here is a serving campaign on the cost model, judged as a run judges it, and accepted as a run accepts it.
"""

import itertools
from dataclasses import replace

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_metrics import SloDetail
from pytest_npubench.campaign.watch import Watched
from pytest_npubench.core.hardware import SloSpec
from pytest_npubench.plugin.campaigns import within_limits
from pytest_npubench.plugin.items import ExpandedCase
from pytest_npubench.plugin.regression import MeasuredCase, Regression
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow
from pytest_npubench.store.acceptance import MetricResult
from pytest_npubench.store.baselines import Baselines, CaseResult
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.scheduling import SUITE
from pytest_npubench.suites.scheduling import bench as bench_module
from pytest_npubench.suites.scheduling.calibration import Calibration
from pytest_npubench.suites.scheduling.experiment import HeldTo
from pytest_npubench.suites.scheduling.held_to import MEASURED, frozen_calibrations
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import DecodeSteps
from pytest_npubench.suites.scheduling.reference_serving import TorchServing
from pytest_npubench.suites.scheduling.spec import LoadSpec
from pytest_npubench.verdict import VerdictKind

from .conftest import kept, serving_plan

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
    one = LoadSpec(model=plan.model, workload="layered-arxiv", **(load or {"utilisation": 0.9}))
    return replace(plan, serving=replace(plan.serving, loads=(one,)), spec=replace(plan.spec, slos=()))


@pytest.fixture
def device(monkeypatch, make_bench):
    """Nights on a device that takes `factor` times as long for everything."""
    made = TorchServing.executor
    monkeypatch.setattr(bench_module, "decode_steps", modelled_decode_steps)

    class Device:
        def __init__(self, directory):
            self.directory, self.numbers = directory, itertools.count(1)

        def campaign(self, plan, factor, kinds, *, frozen=None, earlier=()):
            """A loaded bench, its cases, and two rounds."""
            monkeypatch.setattr(
                TorchServing, "executor", lambda self, plan, runtime: Slowed(made(self, plan, runtime), factor)
            )
            cases = [
                ExpandedCase(case=plan.case("scheduling", kind, axes), plan=plan, kind=case_kind(kind), suite=SUITE)
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
                    row |= kept(point, bench.sample(point, index))
                measured.add(row, Watched())
            return cases, measured

        def night(self, plan, factor=1.0, *, kinds=("policy",), key=KEY, accept=False, across=()):
            """Judgements by case key, held against what was accepted."""
            baselines = Baselines.load(self.directory, missing_ok=True)
            known = frozen_calibrations(plan, baselines, key, across)
            frozen = {workload: one.calibration for workload, one in known.items()}
            cases, measured = self.campaign(plan, factor, kinds, frozen=frozen)
            within = [
                MeasuredCase(case=one.case.key, digest=one.digest, judgement=within_limits(one, measured, known))
                for one in cases
            ]
            regression = Regression(baselines=baselines, margin=0.01, across=across, num_again=0)
            judged = regression.judge(within, key, lambda suspects, index: {}).judgements
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
        assert found.verdict.kind is VerdictKind.NO_BASELINE
        assert found.verdict.reason.startswith("requests that miss the SLO 0 % <= 10.00 %")
        assert found.detail.held_to.rate == found.detail.held_to.limits == MEASURED


def test_a_device_that_became_slower_fails_and_one_that_did_not_stays_green(device, tmp_path):
    nights, plan = device(tmp_path / "b"), plan_of()
    first = of_policy(nights.night(plan, accept=True), "chunked")
    same = of_policy(nights.night(plan), "chunked")
    assert same.verdict.kind is VerdictKind.NO_BASELINE  # one accepted session is too few for the rest
    assert same.detail.held_to.rate == "frozen on 2026-01-01 in night1"
    assert same.frozen == first.frozen
    for factor in (2, 4):
        slow = nights.night(plan, factor)
        for policy in ("chunked", "layered"):
            found = of_policy(slow, policy)
            assert found.verdict.kind is VerdictKind.FAILED
            assert "requests that miss the SLO" in found.verdict.reason
            assert found.verdict.reason.endswith("; rate and limits frozen on 2026-01-01 in night1")
            assert found.detail.rate_per_s == first.detail.rate_per_s
            assert found.detail.slo == first.detail.slo
        # static and continuous batching are not meant to keep it
        assert of_policy(slow, "continuous").verdict.kind is VerdictKind.NO_BASELINE


def test_a_slower_night_that_is_accepted_moves_nothing(device, tmp_path):
    nights, plan = device(tmp_path / "b"), plan_of()
    first = of_policy(nights.night(plan, accept=True), "chunked")
    nights.night(plan, 1.2, accept=True)
    assert of_policy(nights.night(plan, 1.2), "chunked").frozen == first.frozen


def test_another_driver_is_held_to_what_the_old_one_was(device, tmp_path):
    nights, plan = device(tmp_path / "b"), plan_of()
    first = of_policy(nights.night(plan, accept=True), "chunked")
    upgraded = of_policy(nights.night(plan, 4, key=NEWER, accept=True), "chunked")
    assert upgraded.verdict.kind is VerdictKind.FAILED
    assert upgraded.detail.held_to.limits == (
        "frozen on 2026-01-01 in night1 under another stack (driver 570.86 -> 580.12)"
    )
    again = of_policy(nights.night(plan, key=NEWER), "chunked")
    assert again.frozen == first.frozen
    assert again.detail.held_to.limits == "frozen on 2026-01-02 in night2"
    elsewhere = replace(KEY, device_class="four")
    assert of_policy(nights.night(plan, 2, key=elsewhere), "chunked").detail.held_to.rate == MEASURED


def baselines_with(directory, *sessions):
    """Cases of a plan that hold a full rate, accepted one after the other under keys."""
    plan = plan_of()
    cases = [plan.case("scheduling", "policy", axes) for axes in case_kind("policy").axes(plan)]
    for number, (index, key, rate) in enumerate(sessions, start=1):
        result = CaseResult(
            hardware="virtual",
            case=cases[index].key,
            digest=cases[index].digest(plan.settings),
            metrics=(MetricResult(name="ttft_mean_s", unit="s", better="lower", processes=((1.0,),)),),
            frozen={"full_rate_per_s": rate, "decode_step_s": 0.02},
        )
        Baselines(directory=directory, files=()).accept(
            [result], session=f"s{number}", key=key, accepted_at=f"2026-02-{number:02}T12:00:00+00:00"
        )
    return plan, Baselines.load(directory)


def rate_of(found):
    return {workload: one.calibration.full_rate_per_s for workload, one in found.items()}


def test_cases_that_froze_different_values_share_the_oldest(tmp_path):
    plan, baselines = baselines_with(tmp_path / "b", (1, KEY, 2.0), (0, KEY, 1.0), (2, NEWER, 0.5))
    assert rate_of(frozen_calibrations(plan, baselines, KEY, ())) == {"layered-arxiv": 2.0}
    assert rate_of(frozen_calibrations(plan, baselines, NEWER, ())) == {"layered-arxiv": 0.5}
    changed = replace(plan, size=replace(plan.size, num_requests=7))
    assert frozen_calibrations(changed, baselines, KEY, ()) == {}


def test_another_stack_that_is_asked_for_is_compared_and_else_the_latest_is_taken(tmp_path):
    older = replace(KEY, driver="550")
    plan, baselines = baselines_with(tmp_path / "b", (0, older, 1.0), (0, KEY, 2.0), (1, KEY, 2.0), (0, older, 9.0))
    found = frozen_calibrations(plan, baselines, NEWER, ())["layered-arxiv"]
    assert (found.calibration.full_rate_per_s, found.is_of_other_stack) == (1.0, True)  # accepted last, what it froze
    found = frozen_calibrations(plan, baselines, NEWER, ("driver",))["layered-arxiv"]
    assert (found.calibration.full_rate_per_s, found.is_of_other_stack) == (1.0, False)  # the oldest that matches


def test_rounds_of_a_resumed_campaign_come_before_what_is_frozen(device, tmp_path, make_bench):
    plan = plan_of()
    point = case_kind("policy").points(next(iter(_cases(plan))), plan)[0]
    frozen = {"layered-arxiv": Calibration(full_rate_per_s=2.0, decode_step_s=0.02)}
    bench, _ = make_bench(plan, [point], (), frozen)
    row = kept(point, bench.sample(point, 0))
    assert row[f"{point.name}/calibration"] == (2.0, 0.02)
    assert row[f"{point.name}/run"][3:] == (0.9 * 2.0, 15 / 2.0, pytest.approx(5 * 0.02))
    resumed, _ = make_bench(plan, [point], [{f"{point.name}/calibration": (4.0, 0.01)}], frozen)
    assert resumed.sample(point, 0).rate_per_s == 0.9 * 4.0


def _cases(plan):
    return [plan.case("scheduling", "policy", axes) for axes in case_kind("policy").axes(plan)]


def test_a_file_that_states_rate_and_limits_is_an_absolute_gate_from_the_first_night(device, tmp_path, monkeypatch):
    monkeypatch.setattr(bench_module.ServingBench, "_calibrate", None)  # nothing is left to be measured
    stated = plan_of(rate_per_s=1.1)
    slo = SloSpec(model=stated.model, workload="layered-arxiv", ttft_s=12.0, tbt_s=0.125, source="the test's own")
    plan = replace(stated, spec=replace(stated.spec, slos=(slo,)))
    nights = device(tmp_path / "b")
    for factor, kind in ((1, VerdictKind.NO_BASELINE), (4, VerdictKind.FAILED)):
        found = of_policy(nights.night(plan, factor), "chunked")
        assert found.verdict.kind is kind
        assert found.detail.held_to == HeldTo(
            rate="stated in the hardware file",
            limits="stated in the hardware file",
            in_words="rate and limits stated in the hardware file",
        )
        assert found.frozen == {}
        assert (found.detail.rate_per_s, found.detail.slo) == (1.1, SloDetail(ttft_s=12.0, tbt_s=0.125))


def test_limits_of_the_file_come_before_frozen_ones_and_the_rate_stays_frozen(device, tmp_path):
    plan = plan_of()
    slo = SloSpec(model=plan.model, workload="layered-arxiv", ttft_s=12.0, tbt_s=0.125, source="the test's own")
    plan = replace(plan, spec=replace(plan.spec, slos=(slo,)))
    nights = device(tmp_path / "b")
    first = of_policy(nights.night(plan, accept=True), "chunked")
    assert first.detail.held_to.limits == "stated in the hardware file"
    found = of_policy(nights.night(plan, 4), "chunked")
    assert found.detail.rate_per_s == first.detail.rate_per_s
    assert found.verdict.reason.endswith("; rate frozen on 2026-01-01 in night1, limits stated in the hardware file")


def of_attainment(nights, plan, factor=1.0, **about):
    (found,) = nights.night(plan, factor, kinds=("attainment",), **about).values()
    return found


def capacities(judgement):
    return {metric.name.partition("_")[0]: metric for metric in judgement.metrics if "capacity_requests" in metric.name}


@pytest.mark.soak
def test_the_capacity_of_a_slower_device_is_smaller_and_is_judged(device, tmp_path):
    nights, plan = device(tmp_path / "b"), plan_of(num_requests=60)
    first = of_attainment(nights, plan, accept=True)
    for factor in (1.004, 0.997):
        of_attainment(nights, plan, factor, accept=True)
    same, slower, slow = (of_attainment(nights, plan, factor) for factor in (1.002, 1.3, 3))
    assert not same.verdict.failing, same.verdict.reason
    assert slower.verdict.kind is VerdictKind.REGRESSED, slower.verdict.reason
    assert "chunked_capacity_requests_per_s" in slower.verdict.reason
    for policy, found in capacities(slower).items():
        assert found.value < 0.85 * capacities(first)[policy].value
        assert len(found.samples) == 2
    lowest = slow.detail.rate_per_s[0]
    assert slow.verdict.kind is VerdictKind.FAILED
    assert slow.verdict.reason.startswith(
        f"capacity of layered and chunked below the lowest rate tried, {lowest:.3g} requests/s"
    )
    assert {found.samples for found in capacities(slow).values()} == {(lowest, lowest)}
    assert {found.verdict.kind for found in capacities(slow).values()} == {VerdictKind.REGRESSED}
