"""Which layer group a flight runs next, against the rule of our own schedulers."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.extensions.vllm.layered.flight import Flight, set_off
from pytest_npubench.extensions.vllm.layered.settings import LayeredSettings
from pytest_npubench.serving.iteration import LayerGroup
from pytest_npubench.serving.layered_flight import layer_groups, num_groups_for


def stages(flight: Flight | None):
    while flight is not None:
        yield flight.stage
        flight = flight.after_stage()


@given(
    tokens=st.lists(st.integers(1, 3000), min_size=1, max_size=4),
    num_layers=st.integers(1, 60),
    per_iteration=st.integers(1, 2000),
)
def test_groups_are_those_of_our_own_schedulers(tokens: list[int], num_layers: int, per_iteration: int) -> None:
    flight = set_off(
        {str(index): count for index, count in enumerate(tokens)},
        num_layers,
        LayeredSettings(tokens_per_iteration=per_iteration),
    )
    wanted = layer_groups(num_layers, num_groups_for(sum(tokens), per_iteration, num_layers))
    found = list(stages(flight))
    assert tuple(stage.group for stage in found) == wanted
    assert [stage.is_last for stage in found] == [False] * (len(wanted) - 1) + [True]


def test_the_docstring_s_example() -> None:
    flight = set_off({"a": 600, "b": 400}, 5, LayeredSettings())
    assert [stage.group for stage in stages(flight)] == [(0, 3), (3, 5)]
    assert {stage.requests for stage in stages(flight)} == {("a", "b")}


def test_a_number_of_groups_that_was_asked_for_is_held_to_the_layers() -> None:
    settings = LayeredSettings(num_layer_groups=16)
    assert len(list(stages(set_off({"a": 1}, 4, settings)))) == 4
    assert len(list(stages(set_off({"a": 1}, 48, settings)))) == 16


def test_whole_is_one_stage_as_vllm_runs_it() -> None:
    (stage,) = stages(set_off({"a": 5000}, 4, LayeredSettings(), whole=True))
    assert stage.is_whole
    assert stage.group == LayerGroup(0, 4)


def test_a_group_in_the_middle_is_neither_first_nor_last() -> None:
    first, second, third = stages(set_off({"a": 1500}, 3, LayeredSettings()))
    assert (first.is_last, second.is_last, third.is_last) == (False, False, True)
    assert not any(stage.is_whole for stage in (first, second, third))


def test_nobody_sets_off_without_tokens() -> None:
    assert set_off({}, 4, LayeredSettings()) is None


def test_who_left_is_no_longer_part_of_it_and_the_groups_stay() -> None:
    flight = set_off({"a": 600, "b": 600}, 4, LayeredSettings())
    assert flight is not None
    second = flight.after_stage()
    assert second is not None
    left = second.among({"b", "c"})
    assert left is not None
    assert (dict(left.tokens), left.num_tokens, left.stage.group) == ({"b": 600}, 600, second.stage.group)
    assert second.among({"c"}) is None


def test_a_stage_travels_to_a_worker_in_another_process() -> None:
    flight = set_off({"a": 600}, 4, LayeredSettings())
    assert flight is not None
    assert pickle.loads(pickle.dumps(flight.stage)) == flight.stage
