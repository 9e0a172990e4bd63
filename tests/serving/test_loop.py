"""The loop's times, worked out by hand, and the logs of several devices as one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.errors import DeviceError, MeasurementError
from pytest_npubench.serving.clock import VirtualClock, WallClock
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan, LayerGroup, LayerPass, PrefillRow
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.log import IterationLog, merged
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.schedulers import make_scheduler

from .fake_executor import FakeExecutor
from .runs import BLOCK, requests, run


def scheduler(policy="continuous", **settings):
    return make_scheduler(policy, num_layers=4, kv_blocks=250, block_size_tokens=BLOCK, **settings)


def test_times_by_hand():
    first, second = run("continuous", requests((0.5, 10, 3), (1.0, 5, 1))).result.records
    # 0.5 + 1 + 10 * 0.1; then 1 + 5 * 0.1 + 0.01; then 1 + 0.01
    assert first.token_times_s == pytest.approx((2.5, 4.01, 5.02))
    assert second.token_times_s == pytest.approx((4.01,))
    assert (first.dispatched_s, first.scheduled_s) == (0.5, 0.5)
    assert (second.dispatched_s, second.scheduled_s) == pytest.approx((2.5, 2.5))
    assert second.dispatch_lag_s == pytest.approx(1.5)


def test_times_under_layers_by_hand():
    (record,) = run("layered", requests((0, 10, 2)), num_layer_groups=2).result.records
    assert record.token_times_s == pytest.approx((1.5 + 1.5, 3 + 1.01))


def test_the_log_by_hand():
    log = run("layered", requests((0, 10, 2), (0.1, 4, 1)), num_layer_groups=2).result.log
    assert list(log.start_s) == pytest.approx([0, 1.5, 3.0, 4.21])
    assert list(log.end_s) == pytest.approx([1.5, 3.0, 4.21, 5.41])
    assert list(log.num_decode) == [0, 0, 1, 0]
    assert list(log.num_prefill_tokens) == [10, 10, 4, 4]
    assert list(log.num_prefill_layers) == [2, 2, 2, 2]
    assert list(log.num_prefill_pairs) == [55, 55, 10, 10]
    assert list(log.num_running) == [1, 1, 2, 1]
    assert list(log.num_waiting) == [0, 1, 0, 0]
    assert list(log.kv_bytes) == [10 * 2 * 2, 10 * 4 * 2, (11 * 4 + 4 * 2) * 2, 4 * 4 * 2]
    assert list(log.hidden_bytes) == [40, 0, 16, 0]
    assert log.energy_j == [None] * 4


@pytest.mark.parametrize("policy", ["static", "continuous", "chunked", "layered", "hybrid"])
@given(prompts=st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_however_a_prompt_is_cut_it_attends_to_itself_once(policy, prompts):
    load = requests(*((0.1 * index, tokens, 2) for index, tokens in enumerate(prompts)))
    settings = {"chunked": {"chunk_size_tokens": 7}, "hybrid": {"chunk_size_tokens": 9, "num_layer_groups": 2}}
    log = run(policy, load, kv_blocks=100, **settings.get(policy, {})).result.log
    layers = sum(pairs * done for pairs, done in zip(log.num_prefill_pairs, log.num_prefill_layers, strict=True))
    assert layers == 4 * sum(tokens * (tokens + 1) // 2 for tokens in prompts)


def test_waiting_ends_in_time():
    clock = WallClock()
    clock.start()
    for at_s in (0.003, 0.0031, 0.001, 0.012):
        clock.wait_until(at_s)
        assert clock.now_s() >= at_s


def test_a_preempted_requests_times_leave_out_what_ran_again():
    records = run("continuous", requests((0, 4, 7), (0, 4, 7)), kv_blocks=4).result.records
    ends = [record.token_times_s for record in records]
    assert [len(times) for times in ends] == [7, 7]
    assert ends[0][:5] == ends[1][:5]
    # request 0 goes on alone for two tokens; then 1's 9 tokens are made again: 1 + 0.9 s
    assert ends[1][5] == pytest.approx(ends[0][6] + 1.9)


def test_result_says_what_ran():
    result = run("chunked", requests((0, 4, 2)), chunk_size_tokens=3).result
    assert (result.policy, result.clock, result.num_layers) == ("chunked", "virtual", 4)
    assert result.settings == {"chunk_size_tokens": 3, "decode_counts": True, "max_batch_size": 256}
    assert (result.started_s, result.ended_s) == (0, result.log.end_s[-1])


def test_nothing_starts_at_or_after_until_s():
    outcome = run("layered", requests((0, 10, 9), (0.1, 4, 1), (50, 1, 1)), num_layer_groups=2, until_s=4.0)
    first, second = outcome.result.records
    assert outcome.result.ended_s == pytest.approx(4.21)
    assert first.token_times_s == pytest.approx((3.0, 4.21))
    assert second.token_times_s == ()
    assert second.scheduled_s == 3.0
    assert not outcome.executor.held


def test_until_s_ends_the_wait_for_an_arrival_too():
    result = run("continuous", requests((0, 10, 1), (50, 1, 1)), until_s=20.0).result
    assert result.ended_s == 20.0
    assert len(result.records) == 1


def test_progress_counts_iterations():
    counts = []
    load = OpenLoad(requests((0, 4, 4)))
    serve(load, scheduler(), FakeExecutor(), VirtualClock(), on_iteration=counts.append)
    assert counts == [1, 2, 3, 4]


def test_on_the_wall_clock_times_are_measured():
    load = OpenLoad(requests((0.0, 4, 3), (0.02, 4, 1)))
    result = serve(load, scheduler(), FakeExecutor(times=False), WallClock())
    first, second = result.records
    assert result.clock == "wall"
    assert second.dispatched_s >= 0.02
    assert list(first.token_times_s) == sorted(first.token_times_s)
    assert result.ended_s >= second.token_times_s[-1] > 0.02


def test_modelled_seconds_do_not_pass_for_measured_ones():
    with pytest.raises(MeasurementError, match="modelled seconds on the wall clock"):
        serve(OpenLoad(requests((0, 4, 3))), scheduler(), FakeExecutor(), WallClock())


def test_a_virtual_clock_needs_modelled_seconds():
    with pytest.raises(MeasurementError, match="took None s"):
        serve(OpenLoad(requests((0, 4, 3))), scheduler(), FakeExecutor(times=False), VirtualClock())


@pytest.mark.parametrize("error", [DeviceError("lost"), MeasurementError("no memory")])
def test_the_executors_errors_pass_through(error):
    class Failing(FakeExecutor):
        def run(self, plan):
            if len(self.plans) == 2:
                raise error
            return super().run(plan)

    with pytest.raises(type(error), match=str(error)):
        serve(OpenLoad(requests((0, 4, 9))), scheduler(), Failing(), VirtualClock())


def test_a_policy_that_stops_planning_is_found_out():
    class Lazy(type(scheduler())):
        def plan(self):
            return None

    lazy = Lazy(num_layers=4, kv_blocks=9, block_size_tokens=BLOCK)
    with pytest.raises(MeasurementError, match="plans nothing more, but 1 requests have not ended"):
        serve(OpenLoad(requests((0, 4, 1))), lazy, FakeExecutor(), VirtualClock())


ENTRIES = st.lists(st.tuples(st.sampled_from([1.0, 2.0, 3.5]), st.integers(0, 99), st.none() | st.floats(0, 1)))


def log_of(entries: list[tuple[float, int, float | None]]) -> IterationLog:
    log = IterationLog()
    ends, counts, joules = zip(*sorted(entries, key=lambda one: one[0]), strict=True) if entries else ((), (), ())
    columns: dict[str, Any] = {"end_s": ends, "start_s": ends, "energy_j": joules, "host_s": joules}
    log.extend({name: columns.get(name, counts) for name in log.columns()})
    return log


@given(st.lists(ENTRIES, min_size=1, max_size=4))
def test_iterations_are_in_the_order_in_which_they_ended_the_first_device_first(
    found: list[list[tuple[float, int, float | None]]],
) -> None:
    logs = [log_of(entries) for entries in found]
    order = sorted((log.end_s[index], which, index) for which, log in enumerate(logs) for index in range(len(log)))
    for name, column in merged(logs).columns().items():
        assert list(column) == [logs[which].columns()[name][index] for _, which, index in order]
        assert isinstance(column, type(logs[0].columns()[name]))


def test_an_iteration_is_its_plan_and_its_outcome() -> None:
    """Three tokens behind ten, through three layers: 11 + 12 + 13 pairs."""
    log = IterationLog()
    plan = IterationPlan(decode=(4, 5), passes=(LayerPass(LayerGroup(1, 4), (PrefillRow(9, 10, 3),)),))
    outcome = IterationOutcome(
        expert_activations=6, padded_expert_activations=7, expert_load_bytes=8, kv_bytes=9, hidden_bytes=10
    )
    log.append(1.0, 1.5, plan, outcome, num_running=3, num_waiting=2)
    assert len(log) == 1
    assert {name: column[0] for name, column in log.columns().items()} == {
        "start_s": 1.0,
        "end_s": 1.5,
        "num_decode": 2,
        "num_prefill_tokens": 3,
        "num_prefill_layers": 3,
        "num_prefill_pairs": 36,
        "num_running": 3,
        "num_waiting": 2,
        "expert_activations": 6,
        "padded_expert_activations": 7,
        "expert_load_bytes": 8,
        "kv_bytes": 9,
        "hidden_bytes": 10,
        "energy_j": None,
        "host_s": None,
    }
