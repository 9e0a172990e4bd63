"""Two requests against a step cost: held on the device that it was calibrated on, and not on a slower one."""

from dataclasses import replace

import pytest
from campaign.serving.conftest import serving_plan

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import pooled
from pytest_npubench.errors import ConfigError, StoreError
from pytest_npubench.extensions.planning.kinds.step_cost import KIND, NUM_FIGURES
from pytest_npubench.extensions.planning.virtual.cost_file import CostFile, seen_in, write_cost_file
from pytest_npubench.extensions.planning.virtual.drift import calibrate_blocks
from pytest_npubench.extensions.planning.virtual.measured_router import MeasuredRouter
from pytest_npubench.extensions.planning.virtual.step_calibration import samples_of
from pytest_npubench.suites.scheduling.figures import blocks
from pytest_npubench.verdict import VerdictKind


@pytest.fixture
def cost(measure, tmp_path, monkeypatch):
    """What `npubench calibrate` would write of two rounds, in the folder that the run starts in."""
    monkeypatch.chdir(tmp_path)
    plan = serving_plan(policies=("chunked",), num_requests=30)
    kind, (case,), measured = measure(plan, "policy")
    (point,) = kind.points(case, plan)
    served, shape = blocks(measured, point), plan.shape
    token_bytes = shape.kv_bytes_per_token(2)
    found = calibrate_blocks(shape, [samples_of(one.log, shape, kv_token_bytes=token_bytes) for one in served])
    content = CostFile(
        model=shape.name,
        num_layers=shape.num_layers,
        has_experts=True,
        hardware="h",
        tensor_parallel=1,
        dtype="bf16",
        asynchronous=False,
        kv_capacity_tokens=plan.serving.kv_capacity_tokens,
        terms=found.prior.names,
        unit_s=tuple(found.prior.unit_s.tolist()),
        logs=tuple(map(tuple, found.logs.tolist())),
        experts=MeasuredRouter.of([one.log for one in served], shape.num_layers).knots,
        seen=seen_in(pooled(served).log, shape, "bf16"),
        source="two rounds",
        num_seen=1,
        errors={},
    )
    write_cost_file(tmp_path / "cost.json", content)
    return content


@pytest.fixture
def judged(cost, measure):
    def judge(slower=1.0):
        plan = serving_plan()
        kind, (case,), measured = measure(plan, "step_cost")
        rounds = [{name: tuple(slower * one for one in own) for name, own in row.items()} for row in measured.rounds]
        return kind.judge(case, plan, Measured(rounds=rounds))

    return judge


def test_the_device_that_it_was_calibrated_on_holds_it(judged):
    judgement = judged()
    assert judgement.verdict.kind is VerdictKind.PASSED, judgement.verdict.reason
    assert len(judgement.detail.figures) == NUM_FIGURES
    for one in judgement.detail.figures:
        assert one.low_s <= one.predicted_s <= one.high_s
        assert abs(one.predicted_s / one.measured_s - 1) < 0.1


@pytest.mark.parametrize("slower", [0.6, 1.6])
def test_a_device_of_another_speed_does_not(judged, slower):
    verdict = judged(slower).verdict
    assert verdict.kind is VerdictKind.FAILED
    assert "TPOT after 16 prompt tokens" in verdict.reason
    assert verdict.reason.endswith("; calibrate anew, or find what changed")


def test_a_cost_of_other_numbers_is_refused(cost, judged, tmp_path):
    write_cost_file(tmp_path / "cost.json", replace(cost, dtype="fp8"))
    with pytest.raises(ConfigError, match=r"cost.json is of 1 devices in fp8, not of 1 in bf16"):
        judged()
    write_cost_file(tmp_path / "cost.json", replace(cost, num_parameters=5))
    with pytest.raises(ConfigError, match="with 5 parameters, not of one with"):
        judged()


def test_a_cost_that_is_not_there_is_named(judged, tmp_path):
    (tmp_path / "cost.json").unlink()
    with pytest.raises(StoreError, match=r"cost.json: No such file"):
        judged()


def test_a_model_without_a_cost_has_no_such_case():
    plan = serving_plan()
    assert list(KIND.axes(replace(plan, serving=replace(plan.serving, step_costs={})))) == []
