"""Orders of subgraphs: dependencies, the bound against brute force, and the figures the documents print."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings

from pytest_npubench.errors import ConfigError, PartitionError, RegistryError
from pytest_npubench.extensions.pairs.offload.graph import LAYER, Stage, Subgraph, SubgraphDag, prefill_dag
from pytest_npubench.extensions.pairs.offload.out_of_order import lower_bound_s, simulated_bubbles
from pytest_npubench.extensions.pairs.offload.schedules import (
    ReadyQueue,
    Schedule,
    contribution_s,
    make_policy,
    policy_names,
    simulate,
)

from .oracles import brute_force_makespan_s, check_schedule, dags

FUSED_LAYER = (
    Stage(name="qkv", unit="npu", base_s=3.6e-3),
    Stage(name="attention", unit="gpu", base_s=3.6e-3, per_earlier_chunk_s=0.9e-3, reads_earlier=True),
    Stage(name="ffn", unit="npu", base_s=7.5e-3),
)
"""LAYER's work in three subgraphs a layer."""
SMALL = {"deadline": None, "max_examples": 60}


def node(unit: str, seconds: float, *needs: int) -> Subgraph:
    return Subgraph(stage="s", chunk=0, layer=0, unit=unit, duration_s=seconds, needs=needs)


def chain_of_two() -> SubgraphDag:
    """NPU, GPU, NPU of a second each, twice, with nothing between the two."""
    one = (node("npu", 1), node("gpu", 1, 0), node("npu", 1, 1))
    return SubgraphDag((*one, node("npu", 1), node("gpu", 1, 3), node("npu", 1, 4)))


def test_needs_of_a_prefill() -> None:
    dag = prefill_dag(FUSED_LAYER, num_chunks=3, num_layers=2)
    named = {(one.chunk, one.layer, one.stage): index for index, one in enumerate(dag.nodes)}
    assert len(named) == 18
    for (chunk, layer, stage), index in named.items():
        if stage == "attention":
            expected = {named[j, layer, "qkv"] for j in range(chunk + 1)}
        elif stage == "ffn":
            expected = {named[chunk, layer, "attention"]}
        else:
            expected = {named[chunk, layer - 1, "ffn"]} if layer else set()
        assert set(dag.nodes[index].needs) == expected
    assert [dag.nodes[named[i, 0, "attention"]].duration_s for i in range(3)] == pytest.approx([3.6e-3, 4.5e-3, 5.4e-3])


def test_attention_can_need_two_stages_of_every_earlier_chunk() -> None:
    stages = (
        Stage(name="norm", unit="gpu", base_s=1),
        Stage(name="qkv", unit="npu", base_s=1),
        Stage(name="shadow", unit="gpu", base_s=1, follows=("norm",)),
        Stage(name="attention", unit="gpu", base_s=1, reads_earlier=True, follows=("qkv", "shadow")),
    )
    dag = prefill_dag(stages, num_chunks=2, num_layers=1)
    assert dag.nodes[2].needs == (0,)
    assert dag.nodes[7].needs == (1, 2, 5, 6)


@settings(**SMALL)
@given(dags())
def test_every_order_respects_what_is_needed_and_none_beats_the_bound(dag: SubgraphDag) -> None:
    least = lower_bound_s(dag)
    for name in policy_names():
        schedule = simulate(dag, name, seed=3)
        check_schedule(dag, schedule.starts_s)
        assert schedule.makespan_s >= least - 1e-12
        assert 0 <= schedule.bubble_fraction <= 1
        assert sorted(schedule.order("gpu") + schedule.order("npu")) == list(range(len(dag)))


@settings(**SMALL)
@given(dags())
def test_a_ready_queue_never_idles_while_something_is_ready(dag: SubgraphDag) -> None:
    for name in policy_names()[1:]:
        starts = simulate(dag, name).starts_s
        for index, one in enumerate(dag.nodes):
            ready_s = max((starts[need] + dag.nodes[need].duration_s for need in one.needs), default=0.0)
            line = [k for k in dag.of(one.unit) if starts[k] < starts[index] and k != index]
            busy_until_s = max((starts[k] + dag.nodes[k].duration_s for k in line), default=0.0)
            work = sum(
                max(0.0, min(starts[k] + dag.nodes[k].duration_s, starts[index]) - max(starts[k], ready_s))
                for k in line
            )
            assert starts[index] == pytest.approx(ready_s + work)
            assert starts[index] >= busy_until_s - 1e-12


@settings(deadline=None, max_examples=80)
@given(dags(max_nodes=7))
def test_the_bound_is_no_more_than_the_best_of_all_orders(dag: SubgraphDag) -> None:
    assert lower_bound_s(dag) <= brute_force_makespan_s(dag) + 1e-12


def test_a_delay_can_pay() -> None:
    """The NPU should wait a second for the short subgraph that feeds the long one; a ready queue does not."""
    dag = SubgraphDag((node("gpu", 1), node("npu", 1, 0), node("gpu", 9, 1), node("npu", 5)))
    assert simulate(dag, "critical_path").makespan_s == 15
    assert brute_force_makespan_s(dag) == 11


def test_the_worked_numbers_of_the_modules() -> None:
    dag = chain_of_two()
    in_order = simulate(dag, "in_order")
    assert (in_order.makespan_s, in_order.bubble_fraction) == (6, pytest.approx(1 / 3))
    assert simulate(dag, "fifo").makespan_s == 4 == lower_bound_s(dag)


def test_contribution_has_the_sign_of_the_unit() -> None:
    """The first GPU node makes a 3 s node ready, the NPU's a 4 s one; what misses another need does not count."""
    dag = SubgraphDag((node("gpu", 1), node("npu", 1), node("npu", 3, 0), node("gpu", 4, 1), node("npu", 7, 0, 1)))
    queue = ReadyQueue(dag, (0, 1), frozenset())
    assert [contribution_s(queue, index) for index in (0, 1)] == [3, -4]
    assert contribution_s(ReadyQueue(dag, (0,), frozenset({1})), 0) == 10


def test_the_policies_choose_as_they_say() -> None:
    dag = SubgraphDag((node("npu", 1), node("npu", 2), node("gpu", 5, 1), node("gpu", 3, 0)))
    queue = ReadyQueue(dag, (1, 0), frozenset())
    chosen = {name: make_policy(name, dag)(queue) for name in policy_names()[1:]}
    assert chosen["fifo"] == 1
    assert chosen["chunk_order"] == 0
    assert chosen["contribution"] == 0
    assert chosen["critical_path"] == 1
    assert chosen["random"] in (0, 1)
    assert len({make_policy("random", dag, seed=seed)(queue) for seed in range(20)}) == 2


BUBBLES = {
    "in_order": (26.7, 30.7, 37.7),
    "fifo": (7.2, 2.5, 9.9),
    "critical_path": (7.2, 2.5, 12.7),
    "contribution": (7.2, 7.8, 0.5),
}


def test_the_simulated_bubbles_that_are_printed() -> None:
    found = {(one.policy, one.num_chunks): one for one in simulated_bubbles()}
    for policy, percents in BUBBLES.items():
        bubbles = [100 * found[policy, count].bubble_fraction for count in (2, 4, 8)]
        assert bubbles == pytest.approx(percents, abs=0.05)
    over_fifo = [found["contribution", count].over_fifo for count in (2, 4, 8)]
    assert over_fifo == pytest.approx([1.0, 1.057, 0.906], abs=0.002)
    assert all(one.over_bound >= 1 - 1e-12 for one in found.values())


def test_in_order_leaves_the_npu_idle_for_all_of_the_gpus_work() -> None:
    """Closed form: chunk by chunk nothing of the next one can overtake, but for the first norm of the next chunk."""
    for count in (2, 4, 8):
        npu, gpu = 11.1 * count, sum(3.6 + 0.9 * index for index in range(count))
        bubble = next(
            one.bubble_fraction for one in simulated_bubbles(LAYER, num_chunks=(count,)) if one.policy == "in_order"
        )
        assert bubble == pytest.approx(gpu / (gpu + npu), abs=0.005)


def test_a_graph_without_work_on_one_unit() -> None:
    dag = SubgraphDag([node("gpu", 1), node("gpu", 0, 0)])
    for name in policy_names():
        assert simulate(dag, name).makespan_s == 1
    assert simulate(dag, "fifo").bubble_fraction == 1
    assert simulate(SubgraphDag([node("npu", 0)]), "fifo").bubble_fraction == 0


def test_what_cannot_be_used_is_named() -> None:
    dag = chain_of_two()
    with pytest.raises(RegistryError, match="no ready-queue policy 'best'; known: fifo"):
        simulate(dag, "best")
    with pytest.raises(PartitionError, match="no subgraphs"):
        SubgraphDag(())
    with pytest.raises(PartitionError, match=r"needs \(1,\); want nodes before it"):
        SubgraphDag([node("npu", 1), node("npu", 1, 1)])
    with pytest.raises(PartitionError, match="takes nan s"):
        SubgraphDag([node("npu", float("nan"))])
    with pytest.raises(PartitionError, match="is on unit 'tpu'"):
        SubgraphDag([node("tpu", 1)])
    with pytest.raises(PartitionError, match="5 durations for 6"):
        dag.with_durations([1] * 5)
    with pytest.raises(ConfigError, match="num_chunks is 0"):
        prefill_dag(LAYER, num_chunks=0, num_layers=1)
    with pytest.raises(ConfigError, match="number of stages is 0"):
        prefill_dag((), num_chunks=1, num_layers=1)
    with pytest.raises(ConfigError, match="follows"):
        prefill_dag((LAYER[0], Stage(name="x", unit="gpu", base_s=1, follows=("y",))), num_chunks=1, num_layers=1)
    with pytest.raises(ConfigError, match="no numbers of chunks"):
        simulated_bubbles(num_chunks=())


@pytest.mark.parametrize(
    ("starts", "words"),
    [
        ((0, 1, 2, 0.5, 3, 4), "share the npu"),
        ((0, 0.5, 2, 1, 3, 4), "before s"),
        ((0, 1, 2, 3, 4), "5 starts for 6"),
        ((-1, 1, 2, 3, 4, 5), "before the start"),
    ],
)
def test_a_wrong_schedule_is_found(starts: tuple[float, ...], words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        check_schedule(chain_of_two(), starts)


def test_orders_are_those_of_the_starts() -> None:
    schedule = Schedule(policy="mine", dag=chain_of_two(), starts_s=(0, 1, 2, 1, 2, 3))
    starts = [schedule.starts_s[index] for index in schedule.order("npu")]
    assert all(first <= second for first, second in pairwise(starts))
    assert schedule.order("npu") == (0, 3, 2, 5)
