"""What every policy must keep to, over arrivals, lengths, settings and KV capacities that nobody chose.

The fake executor refuses a plan that breaks the rules of an iteration (fake_executor.py); the tests here look at whole
runs. Capacities begin at what one request needs alone, so that preemption is common.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import WorkloadError
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.schedulers import make_scheduler

from .fake_executor import NUM_EXPERTS, greedy
from .runs import BLOCK, ONE_DEVICE, Served, capacities, executor_of, fewest_blocks, loads, policies, requests, run

unhurried = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])

EVERYBODY = (*ONE_DEVICE, "disaggregated")


def served(data: st.DataObject, names: Sequence[str] = ONE_DEVICE) -> tuple[list[ServingRequest], Served]:
    num_layers = data.draw(st.integers(1, 6), label="layers")
    arriving = data.draw(loads(), label="load")
    name, chosen = data.draw(policies(num_layers, names), label="policy")
    states = data.draw(st.sampled_from([0, 0, 1, 5]), label="blocks of states")
    kv_blocks = data.draw(capacities(arriving), label="blocks") + states
    outcome = run(name, arriving, num_layers=num_layers, kv_blocks=kv_blocks, state_blocks=states, **chosen)
    event(f"{name}, preempts: {any(record.num_preemptions for record in outcome.result.records)}")
    return arriving, outcome


def replay(
    arriving: Sequence[ServingRequest], plans: Sequence[IterationPlan]
) -> Iterator[tuple[Any, set[int], set[int]]]:
    """Each plan with who was admitted and who had a token and wanted more, before it ran but after its drops."""
    wanted = {request.id: request.output_tokens for request in arriving}
    admitted: set[int] = set()
    decoding: set[int] = set()
    for plan in plans:
        admitted -= set(plan.dropped)
        decoding -= set(plan.dropped)
        yield plan, set(admitted), set(decoding)
        admitted |= {row.request for _, rows in plan.passes for row in rows}
        decoding |= set(plan.finishing)
        for request in (*plan.decode, *plan.finishing):
            wanted[request] -= 1
        ended = {request for request in decoding if not wanted[request]}
        admitted -= ended
        decoding -= ended
    assert not any(wanted.values())


@unhurried
@given(st.data())
def test_tokens_are_those_of_no_scheduler_at_all(data):
    arriving, outcome = served(data, EVERYBODY)
    assert outcome.tokens == {
        request.id: greedy(request.id, request.prompt_tokens, request.output_tokens) for request in arriving
    }
    for record in outcome.result.records:
        assert len(record.token_times_s) == len(record.tokens) == record.output_tokens


@pytest.mark.parametrize("policy", ["continuous", "chunked", "layered", "hybrid"])
@pytest.mark.parametrize(("states", "together"), [(0, 6), (2, 4), (5, 2), (11, 1)])
def test_states_take_blocks_as_long_as_a_request_is_admitted(policy, states, together):
    """12 blocks; each of 6 requests has a block of tokens beside its states."""
    outcome = run(policy, requests(*[(0, 3, 2)] * 6), kv_blocks=12, state_blocks=states)
    assert max(len(plan.decode) for plan in outcome.plans) == together
    assert outcome.scheduler.batch.blocks.num_free == 12


def test_a_request_that_fits_without_its_states_alone_is_refused():
    with pytest.raises(WorkloadError, match=r"12 blocks of 4, of which a request's states take 12\)"):
        run("chunked", requests((0, 3, 2)), kv_blocks=12, state_blocks=12)


@pytest.mark.parametrize("policy", ["continuous", "chunked", "layered", "hybrid"])
def test_tokens_survive_preemption(policy):
    arriving = requests((0, 9, 12), (0, 8, 12), (0.5, 7, 12))
    settings = {
        "layered": {"num_layer_groups": 3},
        "hybrid": {"chunk_size_tokens": 5},
        "chunked": {"chunk_size_tokens": 6},
    }
    outcome = run(policy, arriving, kv_blocks=fewest_blocks(arriving) + 1, **settings.get(policy, {}))
    assert sum(record.num_preemptions for record in outcome.result.records) > 0
    assert outcome.tokens == {r.id: greedy(r.id, r.prompt_tokens, r.output_tokens) for r in arriving}


@unhurried
@given(st.data())
def test_each_prompt_token_runs_through_each_layer_once_unless_preempted(data):
    arriving, outcome = served(data, EVERYBODY)
    num_layers, records = outcome.result.num_layers, {record.id: record for record in outcome.result.records}
    for request in arriving:
        if not records[request.id].num_preemptions:
            work = {pos: count for (owner, pos), count in outcome.executor.work.items() if owner == request.id}
            assert work == dict.fromkeys(range(request.prompt_tokens), num_layers)
    assert {id_: record.num_preemptions for id_, record in records.items() if record.num_preemptions} == dict(
        outcome.executor.num_dropped
    )


@unhurried
@given(st.data())
def test_every_iteration_advances_everybody_who_decodes_by_one_token(data):
    arriving, outcome = served(data)
    for plan, _, decoding in replay(arriving, outcome.plans):
        assert set(plan.decode) == decoding


@unhurried
@given(st.data())
def test_only_the_latest_are_preempted_and_prompts_start_in_order_of_arrival(data):
    arriving, outcome = served(data)
    for plan, admitted, _ in replay(arriving, outcome.plans):
        assert not plan.dropped or admitted, "the oldest was preempted"
        assert all(kept < gone for kept in admitted for gone in plan.dropped)
        new = [row.request for _, rows in plan.passes for row in rows if row.request not in admitted]
        assert new == sorted(new)
        assert all(old < young for old in admitted for young in new)


@unhurried
@given(st.data())
def test_a_layered_batch_ends_in_exactly_n_iterations(data):
    num_layers = data.draw(st.integers(1, 12), label="layers")
    wanted = data.draw(st.none() | st.integers(1, num_layers), label="N")
    tokens_per_iteration = data.draw(st.integers(1, 40))
    arriving = data.draw(loads(), label="load")
    outcome = run(
        "layered",
        arriving,
        num_layers=num_layers,
        num_layer_groups=wanted,
        tokens_per_iteration=tokens_per_iteration,
        merge_cap_tokens=data.draw(st.integers(1, 60)),
    )
    flights: dict[tuple[Any, ...], list[tuple[int, Any]]] = {}
    for iteration, plan in enumerate(outcome.plans):
        prefilling = [item for item in plan.passes if item.prefill]
        assert len(prefilling) <= 1
        for item in prefilling:
            flights.setdefault(item.prefill, []).append((iteration, item.group))
    for rows, steps in flights.items():
        num_tokens = sum(row.num_tokens for row in rows)
        expected = wanted or min(num_layers, max(1, -(-num_tokens // tokens_per_iteration)))
        iterations = [iteration for iteration, _ in steps]
        assert iterations == list(range(iterations[0], iterations[0] + expected))
        sizes = [group.num_layers for _, group in steps]
        assert sum(sizes) == num_layers
        assert max(sizes) - min(sizes) <= 1


@settings(unhurried, max_examples=60)
@given(
    prompt_tokens=st.integers(1, 40),
    num_layers=st.integers(1, 8),
    chunk=st.integers(1, 40),
    data=st.data(),
)
def test_a_prompt_alone_loads_as_many_experts_layered_as_in_one_shot(prompt_tokens, num_layers, chunk, data):
    def activations(policy: str, **chosen: Any) -> int:
        outcome = run(policy, requests((0, prompt_tokens, 1)), num_layers=num_layers, **chosen)
        assert all(count <= NUM_EXPERTS for layers in outcome.executor.activations for count in layers)
        return sum(outcome.result.log.expert_activations)

    num_groups = data.draw(st.integers(1, num_layers))
    one_shot = activations("continuous")
    assert activations("layered", num_layer_groups=num_groups) == one_shot
    assert activations("chunked", chunk_size_tokens=chunk) >= one_shot


PAIRS = {
    "one layer group is continuous": (
        ("layered", {"num_layer_groups": 1, "merge_cap_tokens": 10**6}),
        ("continuous", {}),
    ),
    "one layer group under a cap is continuous under that limit": (
        ("layered", {"num_layer_groups": 1, "merge_cap_tokens": 20}),
        ("continuous", {"max_prefill_tokens": 20}),
    ),
    "a chunk above everything is continuous": (("chunked", {"chunk_size_tokens": 10**6}), ("continuous", {})),
    "a hybrid of one group is chunked": (
        ("hybrid", {"chunk_size_tokens": 9, "num_layer_groups": 1}),
        ("chunked", {"chunk_size_tokens": 9, "decode_counts": False}),
    ),
    "a hybrid whose chunk is above everything is layered": (
        ("hybrid", {"chunk_size_tokens": 10**6, "tokens_per_iteration": 7}),
        ("layered", {"merge_cap_tokens": 10**6, "tokens_per_iteration": 7}),
    ),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS.keys())
@settings(unhurried, max_examples=40)
@given(data=st.data())
def test_where_policies_meet_their_plans_are_the_same(pair, data):
    arriving = data.draw(loads())
    kv_blocks = data.draw(capacities(arriving))
    one, other = (run(name, arriving, kv_blocks=kv_blocks, **chosen) for name, chosen in pair)
    assert one.plans == other.plans
    assert one.result.records == other.result.records


@unhurried
@given(st.data())
def test_padding_rows_never_count(data):
    arriving = data.draw(loads())
    outcome = run("static", arriving, batch_size=data.draw(st.integers(1, 4)))
    log = outcome.result.log
    for index, (plan, _, decoding) in enumerate(replay(arriving, outcome.plans)):
        assert log.num_decode[index] == len(decoding)
        assert log.expert_activations[index] == sum(outcome.executor.activations[index])
        assert log.padded_expert_activations[index] == log.expert_activations[index] + plan.num_padding_rows
    prefills = groupby(outcome.plans, key=lambda plan: bool(plan.num_prefill_tokens))
    rows = 0
    for is_prefill, plans in prefills:
        for plan in plans:
            rows = len(plan.passes[0].prefill) if is_prefill else rows
            assert is_prefill or len(plan.decode) + plan.num_padding_rows == rows


@unhurried
@given(st.data())
def test_everything_is_freed_in_the_end(data):
    _, outcome = served(data, EVERYBODY)
    assert not outcome.executor.held
    batch = outcome.scheduler.batch
    assert batch.blocks.num_free == batch.blocks.num_blocks
    assert not batch.in_flight
    assert not batch.running
    assert not batch.waiting


@unhurried
@given(st.data())
def test_who_decodes_holds_exactly_the_blocks_of_its_tokens(data):
    arriving = data.draw(loads())
    kv_blocks = data.draw(capacities(arriving))
    name, chosen = data.draw(policies(4, ("continuous", "chunked", "layered", "hybrid")))
    scheduler = make_scheduler(name, num_layers=4, kv_blocks=kv_blocks, block_size_tokens=BLOCK, **chosen)
    executor, batch = executor_of(4, kv_blocks), scheduler.batch

    def check(num_iterations: int) -> None:
        for request, member in batch.running.items():
            assert batch.blocks_of(member) == executor.held[request].num_blocks(BLOCK)
        held = [*batch.running.values(), *batch.in_flight.values()]
        assert batch.blocks.num_free == kv_blocks - sum(map(batch.blocks_of, held))

    serve(OpenLoad(arriving), scheduler, executor, VirtualClock(), on_iteration=check)


@unhurried
@given(st.data())
def test_hidden_states_are_kept_only_for_prompts_in_flight(data):
    num_layers = data.draw(st.integers(2, 6))
    arriving = data.draw(loads())
    name, chosen = data.draw(policies(num_layers, ("layered", "hybrid")))
    kv_blocks = data.draw(capacities(arriving))
    outcome = run(name, arriving, num_layers=num_layers, kv_blocks=kv_blocks, **chosen)
    for plan, hidden_bytes in zip(outcome.plans, outcome.result.log.hidden_bytes, strict=True):
        unfinished = [row for group, rows in plan.passes for row in rows if group.stop < num_layers]
        assert hidden_bytes == 4 * sum(row.num_tokens for row in unfinished)
