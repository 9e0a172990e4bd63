"""The first plans of each policy, written out by hand."""

from __future__ import annotations

import pytest

from pytest_npubench.serving.iteration import IterationPlan, LayerGroup, LayerPass, PrefillRow
from pytest_npubench.serving.layered_flight import layer_groups, num_groups_for

from .runs import requests, run

WHOLE = LayerGroup(0, 4)


def whole(*rows: PrefillRow) -> tuple[LayerPass, ...]:
    return (LayerPass(WHOLE, rows),)


def test_continuous_runs_waiting_prompts_whole_beside_the_decode_rows():
    outcome = run("continuous", requests((0, 8, 3), (0, 4, 1), (1.0, 6, 1)))
    assert outcome.plans == [
        IterationPlan(passes=whole(PrefillRow(0, 0, 8), PrefillRow(1, 0, 4)), finishing=(0, 1)),
        IterationPlan(decode=(0,), passes=whole(PrefillRow(2, 0, 6)), finishing=(2,)),
        IterationPlan(decode=(0,), passes=whole()),
    ]


def test_continuous_keeps_to_its_limit_but_for_the_first_prompt():
    outcome = run("continuous", requests((0, 20, 1), (0, 5, 1), (0, 6, 1), (0, 1, 1)), max_prefill_tokens=11)
    assert [plan.finishing for plan in outcome.plans] == [(0,), (1, 2), (3,)]


def test_chunks_are_shared_and_decode_tokens_count():
    outcome = run("chunked", requests((0, 6, 3), (0, 10, 1)), chunk_size_tokens=8)
    assert outcome.plans == [
        IterationPlan(passes=whole(PrefillRow(0, 0, 6), PrefillRow(1, 0, 2)), finishing=(0,)),
        IterationPlan(decode=(0,), passes=whole(PrefillRow(1, 2, 7))),
        IterationPlan(decode=(0,), passes=whole(PrefillRow(1, 9, 1)), finishing=(1,)),
    ]


def test_decode_tokens_need_not_count():
    outcome = run("chunked", requests((0, 6, 2), (0, 10, 1)), chunk_size_tokens=8, decode_counts=False)
    assert outcome.plans[1].passes == whole(PrefillRow(1, 2, 8))


def test_a_chunk_that_decoding_uses_up_leaves_prompts_waiting():
    outcome = run("chunked", requests((0, 1, 4), (0, 1, 1)), chunk_size_tokens=1)
    assert [(plan.decode, plan.num_prefill_tokens) for plan in outcome.plans] == [((), 1), *[((0,), 0)] * 3, ((), 1)]


def test_layered_runs_one_group_and_the_other_layers_only_decode():
    outcome = run("layered", requests((0, 2, 5), (0.5, 9, 1), (1.0, 3, 1)), num_layer_groups=2, merge_cap_tokens=9)
    first, second, lower, upper = (PrefillRow(0, 0, 2),), (PrefillRow(1, 0, 9),), LayerGroup(0, 2), LayerGroup(2, 4)
    assert outcome.plans[:4] == [
        IterationPlan(passes=(LayerPass(lower, first),)),
        IterationPlan(passes=(LayerPass(upper, first),), finishing=(0,)),
        IterationPlan(decode=(0,), passes=(LayerPass(lower, second), LayerPass(upper))),
        IterationPlan(decode=(0,), passes=(LayerPass(lower), LayerPass(upper, second)), finishing=(1,)),
    ]
    assert outcome.plans[4].passes == (LayerPass(lower, (PrefillRow(2, 0, 3),)), LayerPass(upper))


def test_the_middle_of_three_groups_has_decode_only_layers_on_both_sides():
    outcome = run("layered", requests((0, 1, 9), (0.5, 5, 1)), num_layers=5, num_layer_groups=3)
    in_the_middle = next(plan for plan in outcome.plans if len(plan.passes) == 3)
    assert [(item.group, bool(item.prefill)) for item in in_the_middle.passes] == [
        (LayerGroup(0, 2), False),
        (LayerGroup(2, 4), True),
        (LayerGroup(4, 5), False),
    ]


def test_waiting_prompts_merge_in_order_up_to_the_cap():
    outcome = run(
        "layered", requests((0, 4, 1), (0, 4, 1), (0, 3, 1), (0, 1, 1)), num_layer_groups=1, merge_cap_tokens=8
    )
    assert [plan.finishing for plan in outcome.plans] == [(0, 1), (2, 3)]


def test_the_number_of_groups_follows_the_merged_tokens():
    outcome = run("layered", requests((0, 3, 1), (0, 4, 1)), tokens_per_iteration=3)
    assert [plan.passes[0].group for plan in outcome.plans] == [LayerGroup(0, 2), LayerGroup(2, 3), LayerGroup(3, 4)]


def test_hybrid_runs_each_chunk_layered_and_merges_short_prompts_into_it():
    outcome = run("hybrid", requests((0, 10, 1), (0, 3, 1)), chunk_size_tokens=6, num_layer_groups=2)
    lower, upper = LayerGroup(0, 2), LayerGroup(2, 4)
    chunks = [
        ((PrefillRow(0, 0, 6),), ()),
        ((PrefillRow(0, 6, 4), PrefillRow(1, 0, 2)), (0,)),
        ((PrefillRow(1, 2, 1),), (1,)),
    ]
    expected = []
    for rows, finishing in chunks:
        expected.append(IterationPlan(passes=(LayerPass(lower, rows),)))
        expected.append(IterationPlan(passes=(LayerPass(upper, rows),), finishing=finishing))
    assert outcome.plans == expected


def test_static_pads_until_the_longest_ends_and_lets_nobody_join():
    outcome = run("static", requests((0, 4, 1), (0, 4, 3), (0, 4, 2), (0.5, 4, 1)), batch_size=3)
    assert [(plan.decode, plan.num_padding_rows, plan.finishing) for plan in outcome.plans] == [
        ((), 0, (0, 1, 2)),
        ((1, 2), 1, ()),
        ((1,), 2, ()),
        ((), 0, (3,)),
    ]


@pytest.mark.parametrize(("waits", "batches"), [(False, [(0,), (1, 2)]), (True, [(0, 1), (2,)])])
def test_static_may_wait_for_a_full_batch(waits, batches):
    arriving = requests((0, 4, 1), (0.1, 4, 1), (0.2, 4, 1))
    outcome = run("static", arriving, batch_size=2, wait_for_full_batch=waits)
    assert [plan.finishing for plan in outcome.plans] == batches


def test_static_is_never_preempted():
    outcome = run("static", requests((0, 4, 9), (0, 4, 9)), kv_blocks=4)
    assert [record.num_preemptions for record in outcome.result.records] == [0, 0]
    assert outcome.plans[0].finishing == (0,)


def test_the_latest_is_preempted_and_comes_back_with_its_tokens_in_its_prompt():
    # Blocks of 4, room for 4 of them: both prompts take 1, both second tokens want a 2nd, request 0's sixth a 3rd.
    outcome = run("continuous", requests((0, 4, 7), (0, 4, 7)), kv_blocks=4)
    plans = outcome.plans
    assert [plan.dropped for plan in plans] == [(), (), (), (), (), (1,), (), ()] + [()] * (len(plans) - 8)
    assert plans[5].decode == (0,)
    again = next(plan for plan in plans[5:] if plan.finishing)
    assert again.passes == whole(PrefillRow(1, 0, 4 + 5))
    assert [record.num_preemptions for record in outcome.result.records] == [0, 1]


def test_at_most_max_batch_size_are_admitted():
    outcome = run("continuous", requests(*[(0, 4, 3)] * 5), max_batch_size=2)
    assert all(len(plan.decode) + len(plan.finishing) <= 2 for plan in outcome.plans)
    assert [plan.finishing for plan in outcome.plans if plan.finishing] == [(0, 1), (2, 3), (4,)]


@pytest.mark.parametrize("num_layers", range(1, 20))
def test_layer_groups_are_contiguous_and_nearly_of_one_size(num_layers):
    for num_groups in range(1, num_layers + 1):
        groups = layer_groups(num_layers, num_groups)
        assert [layer for group in groups for layer in range(*group)] == list(range(num_layers))
        sizes = {group.num_layers for group in groups}
        assert len(groups) == num_groups
        assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(
    ("num_tokens", "num_layers", "expected"), [(1, 48, 1), (512, 48, 1), (513, 48, 2), (8192, 48, 16), (8192, 8, 8)]
)
def test_the_papers_rule_for_the_number_of_groups(num_tokens, num_layers, expected):
    assert num_groups_for(num_tokens, 512, num_layers) == expected


def test_nothing_is_built_anew_while_the_batch_does_not_change():
    plans = run("chunked", requests((0, 4, 40), (0, 4, 30))).plans
    assert all(plan is plans[1] for plan in plans[1:30])
    assert plans[30] is not plans[1]
