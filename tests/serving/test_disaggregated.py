"""Prefill and decode on two devices: times by hand, and the same tokens as anywhere (test_invariants.py has more)."""

from __future__ import annotations

from functools import partial

import pytest

from pytest_npubench.errors import ConfigError, DeviceError, MeasurementError
from pytest_npubench.serving.disaggregated import serve_disaggregated
from pytest_npubench.serving.load import ClosedLoad, OpenLoad
from pytest_npubench.serving.schedulers import make_scheduler
from pytest_npubench.serving.two_processes import ProcessPair
from pytest_npubench.serving.virtual_pair import VirtualPair

from .fake_executor import FakeExecutor, greedy
from .runs import BLOCK, requests, run


def scheduler(**settings):
    return make_scheduler(
        "disaggregated", **{"num_layers": 4, "kv_blocks": 250, "block_size_tokens": BLOCK, **settings}
    )


def test_times_by_hand():
    # Prompt 0: 1 + 10 * 0.1 = 2.0 s; its 10 tokens of 4 * 2 bytes at 1 ms a byte take 0.08 s; a decode is 1.01 s.
    # Prompt 1 (5 tokens) waited from 1.0, runs 2.0 to 3.5, moves until 3.54 and waits for the decode that ends at 4.1.
    result = run("disaggregated", requests((0, 10, 4), (1.0, 5, 2))).result
    first, second = result.records
    assert first.token_times_s == pytest.approx((2.0, 3.09, 4.10, 5.12))
    assert second.token_times_s == pytest.approx((3.5, 5.12))
    assert (second.dispatched_s, second.scheduled_s) == pytest.approx((1.0, 2.0))
    assert result.handover_s == pytest.approx((0.08, 0.04))
    assert result.handover_bytes == (80, 40)
    assert list(result.log.end_s) == sorted([*result.prefill_log.end_s, *result.decode_log.end_s])
    assert list(result.log.num_decode) == [0, 1, 0, 1, 2]


def test_a_full_decode_device_keeps_prompts_where_they_are():
    result = run("disaggregated", requests((0, 4, 9), (0, 4, 9)), kv_blocks=4).result
    first, second = result.records
    assert second.token_times_s[0] == first.token_times_s[0]
    assert second.token_times_s[1] > first.token_times_s[-1]
    assert max(result.decode_log.num_running) == 1


def test_the_decode_device_may_have_memory_of_its_own():
    outcome = run("disaggregated", requests((0, 4, 9), (0, 4, 9)), kv_blocks=4, decode_kv_blocks=3)
    assert [len(record.tokens) for record in outcome.result.records] == [9, 9]


def test_one_token_never_leaves_the_prefill_device():
    result = run("disaggregated", requests((0, 4, 1), (0, 4, 1))).result
    assert result.handover_bytes == ()
    assert len(result.decode_log) == 0


@pytest.mark.parametrize("until_s", [1.0, 2.03, 2.5, 3.6, 4.5])
def test_nothing_starts_after_until_s_and_all_is_freed(until_s):
    outcome = run("disaggregated", requests((0, 10, 4), (1.0, 5, 2)), until_s=until_s)
    whole = run("disaggregated", requests((0, 10, 4), (1.0, 5, 2))).result
    assert not outcome.executor.held
    assert max((*outcome.result.prefill_log.start_s, *outcome.result.decode_log.start_s)) < until_s
    for record, complete in zip(outcome.result.records, whole.records, strict=False):
        assert record.tokens == complete.tokens[: len(record.tokens)]
        assert record.token_times_s == complete.token_times_s[: len(record.tokens)]


def test_a_closed_load():
    records = run("disaggregated", ClosedLoad([(4, 3), (4, 1), (6, 2)], concurrency=1)).result.records
    assert [record.arrival_s for record in records[1:]] == [record.token_times_s[-1] for record in records[:2]]


def test_executors_that_cannot_hand_over():
    class Plain:
        num_layers = 4

    with pytest.raises(ConfigError, match="Plain cannot hand KV over; want export_kv and import_kv"):
        VirtualPair(FakeExecutor(), Plain(), transfer_s=lambda num_bytes: 0.0)


def test_a_transfer_that_never_ends():
    devices = VirtualPair(FakeExecutor(), FakeExecutor(), transfer_s=lambda num_bytes: float("inf"))
    with pytest.raises(MeasurementError, match="handing over request 0 took inf s"):
        serve_disaggregated(OpenLoad(requests((0, 4, 2))), scheduler(), devices)


@pytest.mark.parametrize("which", ["prefill", "decode"])
def test_devices_that_do_not_fit_the_scheduler(which):
    smaller = FakeExecutor(num_layers=5)
    pair = (smaller, FakeExecutor()) if which == "prefill" else (FakeExecutor(), smaller)
    devices = VirtualPair(*pair, transfer_s=lambda num_bytes: 0.0)
    with pytest.raises(ConfigError, match=f"on the {which} device, which has 5"):
        serve_disaggregated(OpenLoad(requests((0, 4, 2))), scheduler(), devices)


class Breaking(FakeExecutor):
    """Raises an error in its second iteration."""

    def __init__(self, error: Exception) -> None:
        super().__init__(times=False)
        self.error = error

    def run(self, plan):
        if self.plans:
            raise self.error
        return super().run(plan)


measured = partial(FakeExecutor, times=False)


def test_two_processes_give_the_same_tokens_on_the_wall_clock():
    arriving = requests((0, 10, 6), (0.01, 5, 3), (0.02, 7, 1), (0.05, 30, 12))
    with ProcessPair(measured, measured) as devices:
        result = serve_disaggregated(OpenLoad(arriving), scheduler(), devices)
    assert result.clock == "wall"
    assert {record.id: record.tokens for record in result.records} == {
        request.id: greedy(request.id, request.prompt_tokens, request.output_tokens) for request in arriving
    }
    for record in result.records:
        assert record.arrival_s <= record.dispatched_s <= record.scheduled_s <= record.token_times_s[0]
        assert list(record.token_times_s) == sorted(record.token_times_s)
    assert len(result.handover_s) == 3
    assert all(seconds > 0 for seconds in result.handover_s)


@pytest.mark.parametrize("which", ["prefill", "decode"])
@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (MeasurementError("no memory"), MeasurementError, "no memory"),
        (SystemExit(3), DeviceError, "the {} process ended by itself, exit code 3"),
    ],
)
def test_what_happens_in_a_process_is_told(which, error, raised, message):
    factories = [measured, measured]
    factories[which == "decode"] = partial(Breaking, error)
    arriving = requests((0, 10, 6), (0.2, 5, 3), (0.3, 5, 3))
    with (
        pytest.raises(raised, match=message.format(which)),
        ProcessPair(*factories) as devices,
    ):
        serve_disaggregated(OpenLoad(arriving), scheduler(), devices)
