"""Replicas that share a load: each as it would serve its part alone; in lock step, as one by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving.runs import loads, requests

from pytest_npubench.engines.shapes import DecoderShape, decoder_shape
from pytest_npubench.errors import WorkloadError
from pytest_npubench.extensions.planning.cli.seen_iterations import logged_iterations
from pytest_npubench.extensions.planning.replicas import Replica, serve_replicas
from pytest_npubench.extensions.planning.virtual.calibrated import CalibratedCost
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.extensions.planning.virtual.router import sampled_router
from pytest_npubench.extensions.planning.virtual.shared_experts import SharedExperts
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepCost, StepWork
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.schedulers import make_scheduler

from .virtual.devices import device_of

DENSE, EXPERTS = decoder_shape("mistral-7b-v0.3"), decoder_shape("qwen3-30b-a3b")
SECOND = CalibratedCost(num_layers=DENSE.num_layers, fixed_s=1.0, weights_s=0.0, row_s=0.0, context_s=0.0)
UNEVEN = CalibratedCost(num_layers=DENSE.num_layers, fixed_s=1.0, weights_s=0.5, row_s=0.1, context_s=0.001)
KV_BLOCKS = 16


def device(cost: StepCost, shape: DecoderShape = DENSE) -> VirtualExecutor:
    return device_of(shape, cost, kv_blocks=KV_BLOCKS, block_size_tokens=4)


def policy(name: str = "chunked", num_layers: int = DENSE.num_layers, **settings):  # type: ignore[no-untyped-def]
    return make_scheduler(name, num_layers=num_layers, kv_blocks=KV_BLOCKS, block_size_tokens=4, **settings)


@pytest.mark.parametrize(
    "how",
    [{"is_asynchronous": False}, {"is_asynchronous": True}, {"is_asynchronous": True, "is_stamped": True}],
    ids=["synchronous", "asynchronous", "stamped"],
)
@pytest.mark.parametrize("name", ["chunked", "layered", "static"])
@given(load=loads(), number=st.integers(1, 3))
def test_each_replica_serves_its_part_as_if_it_were_alone(
    name: str, how: dict[str, bool], load: Sequence[ServingRequest], number: int
) -> None:
    """But for a static batch, which asks whether more will come."""
    replicas = [Replica(policy(name), device(UNEVEN)) for _ in range(number)]
    result = serve_replicas(load, replicas, **how)
    assert [record.id for record in result.records] == [request.id for request in load]
    assert len(result.log) == sum(len(one.log) for one in replicas)
    times = {record.id: record.token_times_s for record in result.records}
    assert all(len(times[request.id]) == request.output_tokens for request in load)
    if name == "static" and number > 1:
        return
    for one in replicas:
        part = [request for request in load if request.id in one.scheduler.batch.members]
        if part:
            if how["is_asynchronous"]:
                alone = serve_replicas(part, [Replica(policy(name), device(UNEVEN))], **how)
            else:
                alone = serve(OpenLoad(part), policy(name), device(UNEVEN), VirtualClock())
            for record in alone.records:
                assert list(record.token_times_s) == pytest.approx(list(times[record.id]), rel=0, abs=1e-9)


RECORDED = Path(__file__).with_name("recorded")
LOAD = ((10, 2), (70, 4), (33, 1), (5, 9), (64, 3), (130, 6), (1, 1), (48, 12), (20, 2), (90, 5), (15, 7), (3, 3))
"""Prompt and output tokens of the requests that vLLM was given at once when its logs were recorded."""


@pytest.mark.parametrize("is_asynchronous", [False, True], ids=["synchronous", "asynchronous"])
def test_iterations_are_those_that_vllm_logged(is_asynchronous: bool) -> None:
    """Prompt tokens and decode rows of each, whatever they took: 4 slots are less than the load wants."""
    path = RECORDED / f"vllm_{'a' if is_asynchronous else ''}synchronous.log"
    log = logged_iterations(path, DENSE, kv_token_bytes=1.0, kv_capacity_tokens=1)
    load = requests(*((0.0, *lengths) for lengths in LOAD))
    chunked = make_scheduler(
        "chunked",
        num_layers=DENSE.num_layers,
        kv_blocks=KV_BLOCKS**2,
        block_size_tokens=4,
        chunk_size_tokens=64,
        max_batch_size=4,
    )
    replica = Replica(chunked, device_of(DENSE, SECOND, kv_blocks=KV_BLOCKS**2, block_size_tokens=4))
    ours = serve_replicas(load, [replica], is_asynchronous=is_asynchronous).log
    assert list(ours.num_prefill_tokens) == list(log.num_prefill_tokens)
    assert list(ours.num_decode) == list(log.num_decode)


def test_a_request_goes_where_least_waits() -> None:
    """Iterations of 1 s. Request 2 finds one running in either and goes to the first; 3 to the one with fewer."""
    load = requests((0.0, 4, 9), (0.1, 4, 9), (0.2, 4, 9), (3.5, 4, 1))
    replicas = [Replica(policy(), device(SECOND)) for _ in range(2)]
    serve_replicas(load, replicas)
    assert [sorted(one.scheduler.batch.members) for one in replicas] == [[0, 2], [1, 3]]


def test_in_lock_step_all_end_with_the_slowest() -> None:
    """Replica 0 prefills 20 tokens (1 s + 0.1 s each), replica 1 nothing until 1.0 s: its request starts at 3.0 s, with
    the next iteration, and both then take the 1.8 s of 8 prompt tokens."""

    class Together:
        def __init__(self, devices: Sequence[VirtualExecutor]) -> None:
            self.devices = devices

        def __call__(self, plans):  # type: ignore[no-untyped-def]
            work = [None if plan is None else one.work(plan)[0] for plan, one in zip(plans, self.devices, strict=True)]
            slowest_s = max(UNEVEN.seconds(one) for one in work if one is not None)
            return [
                None if plan is None else one.outcome(slowest_s, 0, padded_activations=0)
                for plan, one in zip(plans, self.devices, strict=True)
            ]

    devices = [device(UNEVEN), device(UNEVEN)]
    replicas = [Replica(policy(), one) for one in devices]
    load = requests((0.0, 20, 2), (1.0, 8, 1))
    result = serve_replicas(load, replicas, together=Together(devices))
    first, second = (record.token_times_s for record in result.records)
    assert first == pytest.approx((3.0, 4.8))
    assert second == pytest.approx((4.8,))
    assert list(replicas[1].log.start_s) == pytest.approx([3.0])


class Told:
    """A cost that is 1 s and keeps what was asked."""

    def __init__(self) -> None:
        self.works: list[StepWork] = []

    def seconds(self, work: StepWork) -> float:
        self.works.append(work)
        return 1.0 + len(self.works) / 10


def test_replicas_that_share_experts_activate_them_together() -> None:
    cost = Told()
    devices = [device(cost, EXPERTS) for _ in range(2)]
    together, layers = SharedExperts(EXPERTS, devices), EXPERTS.num_layers
    rows = [PrefillRow(0, 0, 12), PrefillRow(1, 0, 4)]
    whole = LayerGroup(0, layers)
    plans = [IterationPlan(passes=(LayerPass(whole, (row,)),), finishing=(row.request,)) for row in rows]
    outcomes = together(plans)
    union = sampled_router(EXPERTS, 0).activations(1, 0, layers, 0, rows)
    assert [work.passes[0].activations for work in cost.works] == [union, union]
    assert [work.expert_rows for work in cost.works] == pytest.approx([8 / 12, 8 / 4])
    assert [one and one.duration_s for one in outcomes] == [1.2, 1.2]  # as long as the slower of the two
    assert [one and one.expert_activations for one in outcomes] == [union, 0]  # counted once
    alone = together([IterationPlan(decode=(0,), passes=(LayerPass(whole),)), None])
    assert alone[1] is None
    assert cost.works[-1].expert_rows == pytest.approx(1 / 2)  # the other replica's devices multiply half


def test_a_layer_group_shares_with_the_layers_of_the_others() -> None:
    """One replica prefills in half of the layers, the other in all: the union is asked for each half."""
    cost = Told()
    devices = [device(cost, EXPERTS) for _ in range(2)]
    layers = EXPERTS.num_layers
    halves = [LayerGroup(0, layers // 2), LayerGroup(layers // 2, layers)]
    rows = [PrefillRow(0, 0, 12), PrefillRow(1, 0, 4)]
    plans = [
        IterationPlan(passes=(LayerPass(halves[0], (rows[0],)),)),
        IterationPlan(passes=(LayerPass(LayerGroup(0, layers), (rows[1],)),), finishing=(1,)),
    ]
    SharedExperts(EXPERTS, devices)(plans)
    router = sampled_router(EXPERTS, 0)
    both = router.activations(1, *halves[0], 0, rows)
    one = router.activations(1, *halves[1], 0, rows[1:])
    assert [[each.activations for each in work.passes] for work in cost.works] == [[both], [both + one]]


def test_a_row_s_operations_in_the_experts_are_the_mean_of_all_replicas() -> None:
    """A quarter of them here: half as many rows there take an eighth off."""
    cost = CalibratedCost(num_layers=1, fixed_s=0.0, weights_s=0.0, row_s=1.0, context_s=0.0, expert_share=0.25)
    work = StepWork([PassWork(0, 1, (), 0)], 8, 0.0, 0.0, 8)
    assert cost.seconds(work) == 8
    assert cost.seconds(work._replace(expert_rows=0.5)) == 7


def test_what_no_replica_holds_is_refused() -> None:
    replicas = [Replica(policy(), device(SECOND)) for _ in range(2)]
    with pytest.raises(WorkloadError, match="KV cache, which holds 64"):
        serve_replicas(requests((0.0, 60, 9)), replicas)


def asynchronous_by_hand(load: Sequence[ServingRequest], most: int, chunk: int) -> dict[int, float]:
    """First tokens of vLLM's asynchronous scheduler, iterations of 1 s, one at a time: iteration n + 1 is planned when
    n starts, from what had arrived then and without knowing who ends in n; who has all tokens under way is given no
    row, and keeps its slot until the output of n is seen. Nothing to plan: that output is waited for first."""
    waiting, running, now, first = sorted(load, key=lambda each: each.arrival_s), [], 0.0, {}
    done: dict[int, list[int]] = {each.id: [0, 0] for each in load}  # prompt tokens and output tokens under way
    planned_at, seen = None, []  # seen: who ended in the iteration whose output is not seen yet
    while waiting or running:
        noticed = now if planned_at is None else planned_at
        rows, room = [], chunk
        for each in running:
            if done[each.id][0] == each.prompt_tokens and done[each.id][1] < each.output_tokens:
                rows.append((each, 1))
                room -= 1
        candidates = [each for each in running if done[each.id][0] < each.prompt_tokens]
        while room > 0 and (candidates or (waiting and len(running) < most and waiting[0].arrival_s <= noticed)):
            if candidates:
                each = candidates.pop(0)
            else:
                running.append(each := waiting.pop(0))
            rows.append((each, min(room, each.prompt_tokens - done[each.id][0])))
            room -= rows[-1][1]
        running = [each for each in running if each not in seen]
        seen = []
        if not rows:
            now = max(now, waiting[0].arrival_s) if waiting and planned_at is None and not running else now
            planned_at = None
            continue
        planned_at, now = now, now + 1.0
        for each, number in rows:
            state = done[each.id]
            if state[0] < each.prompt_tokens:
                state[0] += number
            if state[0] == each.prompt_tokens:
                state[1] += 1
                first.setdefault(each.id, now)
                if state[1] == each.output_tokens:
                    seen.append(each)
    return first


@given(load=loads(), most=st.integers(1, 3), chunk=st.integers(3, 9))
def test_who_ends_keeps_its_slot_for_one_iteration_more(load: Sequence[ServingRequest], most: int, chunk: int) -> None:
    """As in vLLM's asynchronous scheduler, where nobody lacks a block."""
    device = VirtualExecutor(
        DENSE, None, tensor_parallel=1, dtype="bf16", kv_capacity_tokens=4000, block_size_tokens=4, cost=SECOND
    )
    how = {"kv_blocks": 1000, "block_size_tokens": 4, "chunk_size_tokens": chunk, "max_batch_size": most}
    replica = Replica(make_scheduler("chunked", num_layers=DENSE.num_layers, **how), device)
    served = serve_replicas(load, [replica], is_asynchronous=True)
    assert {record.id: record.token_times_s[0] for record in served.records} == pytest.approx(
        asynchronous_by_hand(load, most, chunk)
    )


@pytest.mark.parametrize(("is_asynchronous", "third_s"), [(True, 4.0), (False, 3.0)])
def test_who_ended_frees_its_blocks_before_another_is_preempted(is_asynchronous: bool, third_s: float) -> None:
    """vLLM preempts the last of those that run, who ended among them, and admits nobody in that iteration (0.32:
    Scheduler.schedule). The second holds 8 of 16 blocks and ends at 2 s; the first then wants its ninth."""
    served = serve_replicas(
        requests((0.0, 31, 4), (0.0, 29, 2), (0.0, 20, 1)),
        [Replica(policy(chunk_size_tokens=64), device(SECOND))],
        is_asynchronous=is_asynchronous,
    )
    assert served.records[0].token_times_s == pytest.approx((1.0, 2.0, 3.0, 4.0))
    assert (served.records[0].num_preemptions, served.records[2].token_times_s) == (0, pytest.approx((third_s,)))


@pytest.mark.parametrize(("is_asynchronous", "third_s"), [(True, 4.0), (False, 3.0)])
@pytest.mark.parametrize(("prompt", "most"), [(10, 2), (26, 9)], ids=["slots", "blocks"])
def test_the_third_of_three_where_two_have_room(is_asynchronous: bool, third_s: float, prompt: int, most: int) -> None:
    """On two slots; or 7 blocks each of the 16 that there are, of 4 tokens, and one more for the second's answer."""
    served = serve_replicas(
        requests((0.0, prompt, 2), (0.0, prompt, 4), (0.0, prompt, 2)),
        [Replica(policy(chunk_size_tokens=64, max_batch_size=most), device(SECOND))],
        is_asynchronous=is_asynchronous,
    )
    assert served.records[2].token_times_s[0] == pytest.approx(third_s)
