"""Every experiment of the scheduling suite, on the cost model of two H100 with the paper's model and load."""

from dataclasses import replace

import pytest
from judging import assert_failed_points_are_named, assert_told_apart, judgement_on

from pytest_npubench.serving.iteration import IterationOutcome
from pytest_npubench.suites import case_kind, suite
from pytest_npubench.suites.scheduling import SUITE
from pytest_npubench.suites.scheduling.decoding import decode_steps
from pytest_npubench.verdict import VerdictKind

from .conftest import KINDS, OF_FILES, OF_TENSORS, SPECS, serving_plan

DENSE = ("dense_control",)


def plan_for(name, **changes):
    if name in ("attainment", "chunk_rate"):  # a short block never fills its queue
        changes = {"num_requests": 60, **changes}
    if name == "simulated_coverage":  # each of its six rounds is simulated again for every other one
        changes = {"num_requests": 6, **changes}
    return serving_plan("qwen3-8b" if name in DENSE else "qwen3-30b-a3b", **changes)


def test_every_experiment_of_a_hardware_file_has_its_kind():
    assert set(suite("scheduling").kinds) == {*KINDS, *OF_TENSORS, *OF_FILES} == set(SUITE.kinds)


@pytest.mark.parametrize("name", [*KINDS, *OF_TENSORS, *OF_FILES])
def test_it_keeps_what_every_kind_does(name):
    plan = plan_for(name)
    cases = [plan.case("scheduling", name, axes) for axes in case_kind(name, ("scheduling",)).axes(plan)]
    assert_told_apart("scheduling", name, plan, cases)
    assert_failed_points_are_named(cases[0], plan)


@pytest.mark.parametrize("name", KINDS)
def test_on_the_paper_s_load_every_experiment_ends_as_the_paper_s(name, measure):
    """Energy is not modelled; all else passes, and survives the journal."""
    kind, cases, measured = measure(plan_for(name), name, num_rounds=6 if name == "simulated_coverage" else 2)
    for case in cases:
        judgement = judgement_on(case, plan_for(name), measured)
        expected = VerdictKind.UNAVAILABLE if name == "energy" else VerdictKind.PASSED
        assert judgement.verdict.kind is expected, (case.id, judgement.verdict.reason)
        assert kind.settled(case, plan_for(name), measured)


def test_layered_prefill_loads_less_and_the_reduction_is_that_of_the_counters(measure):
    plan = plan_for("expert_loads")
    kind, (case,), measured = measure(plan, "expert_loads")
    judgement = kind.judge(case, plan, measured)
    layered, chunked = kind.points(case, plan)
    sums = [
        [sum(row[f"{point.name}/iteration.expert_load_bytes"]) for row in measured.rounds]
        for point in (layered, chunked)
    ]
    ratios = [one / other for one, other in zip(*sums, strict=True)]
    (loads,) = [metric for metric in judgement.metrics if metric.name == "expert_load_ratio"]
    assert loads.samples == pytest.approx(ratios)
    assert loads.value == pytest.approx((ratios[0] * ratios[1]) ** 0.5)
    assert judgement.detail.reduction == pytest.approx(1 - loads.value)
    assert loads.value < 0.8


def test_more_misses_than_one_in_ten_fail_a_stall_free_policy_alone(measure):
    plan = plan_for("policy", policies=("chunked", "continuous"))
    kind, cases, measured = measure(plan, "policy")
    for row in measured.rounds:
        for name in row:
            if name.endswith("/run"):
                row[name] = (*row[name][:4], 1e-3, 1e-4)  # limits that nobody meets
    verdicts = {case.axis("policy"): kind.judge(case, plan, measured).verdict for case in cases}
    assert verdicts["chunked"].kind is VerdictKind.FAILED
    assert "requests that miss the SLO 100.00 % > 10.00 %" in verdicts["chunked"].reason
    assert verdicts["continuous"].kind is VerdictKind.PASSED


def test_counters_that_change_between_rounds_fail(measure):
    for name, column in (("chunk_sweep", "expert_load_bytes"), ("expert_coverage", "expert_activations")):
        plan = plan_for(name)
        kind, cases, measured = measure(plan, name)
        key = f"{kind.points(cases[0], plan)[0].name}/{column}"
        measured.rounds[1][key] = tuple(value + 1 for value in measured.rounds[1][key])
        kinds = [kind.judge(case, plan, measured).verdict.kind for case in cases]
        assert kinds[0] is VerdictKind.FAILED
        assert set(kinds[1:]) == {VerdictKind.PASSED}


class Launching:
    """Every iteration's launches take a known time, of which the device tells nothing where it is None."""

    num_layers = 2

    def __init__(self, hosts_s):
        self._hosts_s = iter(hosts_s)

    def begin(self, *_):
        pass

    end = begin

    def run(self, plan):
        return IterationOutcome(expert_activations=3, host_s=next(self._hosts_s) if plan.decode else 9.0)


def test_a_visit_of_decode_steps_alone_tells_the_hosts_part_of_each(measure):
    steps = decode_steps(Launching([0.004, 0.005]), 2, 16, 2)
    assert (steps.host_s, steps.expert_activations) == ((0.004, 0.005), (3, 3))
    assert decode_steps(Launching([0.004, None]), 2, 16, 2).host_s == ()
    plan = plan_for("expert_coverage")
    kind, (case, *_), measured = measure(plan, "expert_coverage")
    assert (kind.judge(case, plan, measured).detail.host_s, "host" in str(measured.rounds)) == (None, False)
    (point,) = kind.points(case, plan)
    for row in measured.rounds:
        row[f"{point.name}/step_s"] = (0.018, 0.0168)
        row[f"{point.name}/expert_activations"] = row[f"{point.name}/expert_activations"][:2]
        row[f"{point.name}/host_s"] = (0.0041, 0.0043)
    judgement = kind.judge(case, plan, measured)
    assert judgement.detail.host_s == pytest.approx(0.0041)
    assert "4.1 of 16.8 ms of a step are the host's" in judgement.verdict.reason


@pytest.mark.parametrize(
    ("spec", "engine", "num_digests"),
    [("nvidia-h100", "reference", 2), ("cpu", "reference", 1), ("tpu-v5p", "reference", 1), ("cpu", "jax_moe", 1)],
)
def test_a_run_without_graphs_is_another_only_where_there_are_graphs(spec, engine, num_digests):
    plan = replace(serving_plan(), spec=SPECS[spec], engine=engine)
    case, settings = (
        plan.case("scheduling", "policy", ()),
        (replace(plan, graphs=graphs).settings for graphs in (True, False)),
    )
    assert len({case.digest(of_run) for of_run in settings}) == num_digests
