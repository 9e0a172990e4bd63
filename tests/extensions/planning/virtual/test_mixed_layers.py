"""Layers that differ: a decoder whose layers are alike costs as much when it is taken layer by layer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.virtual.calibration import prior_of
from pytest_npubench.extensions.planning.virtual.cost import cost_model
from pytest_npubench.extensions.planning.virtual.mixed_layers import step_cost
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepWork
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.suites.hardware_files import known_folders, load_all

SPEC = load_all(known_folders())["nvidia-h100"]
HOW = {"tensor_parallel": 2, "dtype": "bf16"}


@pytest.mark.parametrize("name", ["llama-3.2-1b", "qwen3-30b-a3b", "gpt-oss-20b"])
@given(data=st.data())
def test_layers_that_are_alike_cost_the_same_one_by_one(name: str, data: st.DataObject) -> None:
    shape = decoder_shape(name)
    first = data.draw(st.integers(0, shape.num_layers - 1))
    stop = data.draw(st.integers(first + 1, shape.num_layers))
    rows = [PrefillRow(0, data.draw(st.integers(0, 900)), data.draw(st.integers(1, 900)))]
    activations = 0 if shape.is_dense else data.draw(st.integers(1, 8 * (stop - first)))
    decode = data.draw(st.integers(0, 64))
    work = StepWork([PassWork(first, stop, rows, activations)], decode, decode * 500, decode * 100, decode + 1)
    mixed = step_cost(replace(shape, layers=shape.all_layers), SPEC, **HOW)
    assert mixed.seconds(work) == pytest.approx(cost_model(shape, SPEC, **HOW).seconds(work), rel=1e-12)


@pytest.mark.parametrize("name", ["llama-3.2-1b", "qwen3-30b-a3b", "gpt-oss-20b"])
def test_a_calibration_begins_with_the_same_seconds(name: str) -> None:
    shape = decoder_shape(name)
    alike, mixed = (prior_of(each, SPEC, **HOW).unit_s for each in (shape, replace(shape, layers=shape.all_layers)))
    assert mixed == pytest.approx(alike)


def test_dense_layers_have_no_experts() -> None:
    """Of 48 layers the first 8 are dense: 8 experts a token are activated in 40, and the rest costs nothing of them."""
    shape = decoder_shape("qwen3-30b-a3b")
    dense = replace(shape.all_layers[0], has_experts=False, router_parameters=0, dense_parameters=3 * 2048 * 6144)
    mixed = replace(shape, layers=(dense,) * 8 + shape.all_layers[8:])
    assert mixed.expert_layers(4, 20) == (0, 12)
    experts = shape.num_experts * shape.expert_parameters
    router = shape.hidden * shape.num_experts
    assert mixed.num_parameters == shape.num_parameters + 8 * (3 * 2048 * 6144 - experts - router)
    cost = step_cost(mixed, SPEC, **HOW)

    def seconds(first: int, stop: int, activations: int) -> float:
        return cost.seconds(StepWork([PassWork(first, stop, (), activations)], 1, 100, 100, 1))

    assert seconds(0, 48, 320) - seconds(0, 48, 0) == pytest.approx(seconds(8, 48, 320) - seconds(8, 48, 0))
    assert seconds(0, 8, 0) == seconds(0, 8, 320)
