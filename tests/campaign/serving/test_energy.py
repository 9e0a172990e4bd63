"""The energy experiment on a made-up telemetry: figures by hand from joules that a test sets, never measured ones."""

from types import SimpleNamespace

import pytest

from pytest_npubench.backends.telemetry.round_state import RoundState
from pytest_npubench.backends.telemetry.state import DeviceState
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.watch import Watched
from pytest_npubench.suites import case_kind
from pytest_npubench.suites.scheduling import bench as bench_module
from pytest_npubench.suites.scheduling.bench import ServingBench
from pytest_npubench.suites.scheduling.figures import blocks
from pytest_npubench.suites.scheduling.points import IdlePoint
from pytest_npubench.verdict import VerdictKind

from .conftest import kept, serving_plan

PLAN = serving_plan()
KIND = case_kind("energy")
(CASE,) = (PLAN.case("scheduling", "energy", axes) for axes in KIND.axes(PLAN))
LAYERED, CHUNKED, IDLE = KIND.points(CASE, PLAN)
WHY = "unavailable: /sys/class/powercap/intel-rapl:0/energy_uj: permission denied; grant it with: sudo chmod ..."


class MadeTelemetry:
    """Its counter grows by 100 J a reading, and the clock by 2 s: 50 W."""

    def __init__(self, known=True):
        self.known, self.num_read = known, 0

    def read(self):
        self.num_read += 1
        energy = {"energy_j": 100.0 * self.num_read} if self.known else {"energy_unknown": WHY}
        return DeviceState(taken_at_s=2.0 * self.num_read, wall_at_s=2.0 * self.num_read, **energy)

    def close(self):
        pass


@pytest.fixture
def make(make_bench, monkeypatch):
    """A bench with that telemetry, ready for the experiment's points; naps are counted, not slept."""
    naps = []
    monkeypatch.setattr(bench_module, "sleep", naps.append)

    def made(telemetry):
        bench = ServingBench(SimpleNamespace(devices=["virtual"], telemetry=lambda: telemetry), PLAN)
        bench.load((LAYERED, CHUNKED, IDLE), (), lambda text: None)
        return bench, naps

    return made


def rows(bench, num_rounds=2):
    return [
        {
            name: values
            for point in (LAYERED, CHUNKED, IDLE)
            for name, values in kept(point, bench.sample(point, index)).items()
        }
        for index in range(num_rounds)
    ]


def test_energy_by_token_and_above_idle_by_hand(make):
    bench, naps = make(MadeTelemetry())
    measured = Measured(rounds=rows(bench), watched=[Watched(), Watched()])
    assert naps == [1.0] * 4
    assert [row["idle/power_w"] for row in measured.rounds] == [(50.0,), (50.0,)]
    found = KIND.judge(CASE, PLAN, measured)
    values = {metric.name: metric for metric in found.metrics}
    assert values["energy_ratio"].samples == (1.0, 1.0)  # 100 J a block under each
    for policy, point in (("layered", LAYERED), ("chunked", CHUNKED)):
        served = blocks(measured, point)
        prompts = [sum(record.prompt_tokens for record in block.records) for block in served]
        outputs = [sum(record.output_tokens for record in block.records) for block in served]
        durations_s = [block.ended_s - block.started_s for block in served]
        tokens = [sum(pair) for pair in zip(prompts, outputs, strict=True)]
        assert values[f"{policy}_mj_per_prompt_and_output_token"].samples == pytest.approx([1e5 / n for n in tokens])
        assert values[f"{policy}_mj_per_output_token"].samples == pytest.approx([1e5 / n for n in outputs])
        above = values[f"{policy}_mj_above_idle_per_prompt_and_output_token"]
        assert above.samples == pytest.approx(
            [1e3 * (100 - 50 * took_s) / n for took_s, n in zip(durations_s, tokens, strict=True)]
        )
        assert above.gate == "none"
        assert found.detail.power_w[policy] == pytest.approx(200 / sum(durations_s))
    assert found.detail.idle_power_w == 50.0


def test_where_nothing_can_be_read_the_case_says_why_and_nobody_waits(make):
    bench, naps = make(MadeTelemetry(known=False))
    assert bench.warm_up(IDLE)[1]
    found = rows(bench)
    assert naps == []
    assert not any(name.startswith("idle") for row in found for name in row)
    watched = Watched(state=RoundState(duration_s=1.0, energy_unknown=WHY))
    resumed = Watched.from_json(watched.to_json())
    judgement = KIND.judge(CASE, PLAN, Measured(rounds=found, watched=[Watched(), resumed]))
    assert judgement.verdict.kind is VerdictKind.UNAVAILABLE
    assert judgement.verdict.reason == f"energy {WHY}"
    assert judgement.metrics == ()


def test_without_idle_power_there_is_no_figure_above_it(make):
    bench, _ = make(MadeTelemetry())
    found = [{name: values for name, values in row.items() if name != "idle/power_w"} for row in rows(bench)]
    judgement = KIND.judge(CASE, PLAN, Measured(rounds=found))
    assert judgement.verdict.kind is VerdictKind.PASSED
    assert judgement.detail.idle_power_w is None
    assert not any("above_idle" in metric.name for metric in judgement.metrics)


def test_the_idle_point_is_one_for_all_cases():
    assert IdlePoint() == IDLE
    assert IDLE.definition == ["idle"]
