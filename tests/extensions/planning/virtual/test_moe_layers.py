"""Measured MoE layers: the table as it is shipped, seconds against numpy, and the paper's directions on it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.engines.kv_capacity import default_kv_capacity_tokens
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.errors import ConfigError
from pytest_npubench.extensions.planning.cli.simulation import System, arriving, simulate
from pytest_npubench.extensions.planning.virtual.cost import cost_model
from pytest_npubench.extensions.planning.virtual.moe_layers import measured_moe_cost, table
from pytest_npubench.extensions.planning.virtual.step_cost import PassWork, StepWork
from pytest_npubench.serving.iteration import PrefillRow
from pytest_npubench.serving.metrics import summarize
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.workloads import workload

from .pass_costs import pass_cost

SPECS = load_all([default_directory()])
SHAPE = decoder_shape("qwen3-30b-a3b")
ROUTINGS = ("balanced", "power-law")
H100 = {"tensor_parallel": 2, "dtype": "bf16"}


def test_the_table_is_whole() -> None:
    layers = table()
    assert {one["device"] for one in layers} == {"nvidia-a100", "nvidia-h100", "nvidia-h200", "nvidia-b200"}
    keys = [(one["device"], one["model"], one["tensor_parallel"], one["routing"]) for one in layers]
    assert len(set(keys)) == len(keys)
    for one in layers:
        assert one["routing"] in ROUTINGS
        assert one["tokens"][0] == 1
        assert all(before < after for before, after in pairwise(one["tokens"]))
        assert len(one["us"]) == len(one["tokens"])
        assert min(one["us"]) > 10  # no layer of 128 experts is faster


def test_the_plateau_that_layered_prefill_lives_by() -> None:
    """All experts of a H100's layer are read from 16 tokens on; 512 cost hardly more (Layered Prefill, section 3)."""
    (one,) = [
        row
        for row in table()
        if (row["device"], row["tensor_parallel"], row["routing"]) == ("nvidia-h100", 1, "balanced")
    ]
    us = dict(zip(one["tokens"], one["us"], strict=True))
    assert us[16] > 8 * us[1]
    assert us[512] < 1.2 * us[16]
    expert_bytes = SHAPE.num_experts * SHAPE.expert_bytes(2)
    assert us[32] * 1e-6 > expert_bytes / 3.35e12  # the peak bandwidth is not beaten


@given(rows=st.integers(1, 40_000), devices=st.sampled_from([1, 2, 4]), routing=st.sampled_from(ROUTINGS))
def test_a_layer_is_linear_between_what_was_measured(rows: int, devices: int, routing: str) -> None:
    cost = measured_moe_cost(SHAPE, SPECS["nvidia-h100"], tensor_parallel=devices, dtype="bf16", routing=routing)
    if rows <= cost.rows[-1]:
        wanted = float(np.interp(rows, cost.rows, cost.layer_seconds))
    else:
        wanted = cost.layer_seconds[-1] * rows / cost.rows[-1]
    assert cost.layer_s(rows) == pytest.approx(wanted)
    assert cost.layer_s(0) == 0.0


@given(decode=st.integers(0, 64), prompt=st.integers(0, 2000), first=st.integers(0, 47), count=st.integers(1, 48))
def test_only_the_experts_are_another_s(decode: int, prompt: int, first: int, count: int) -> None:
    """The rest is what the roofline has without any expert: its own total less expert and router time and the values
    that experts move."""
    stop = min(48, first + count)
    rows = (PrefillRow(0, 0, prompt),) if prompt else ()
    work = StepWork([PassWork(first, stop, rows, 0)], decode, 100.0 * decode, 0.0, decode)
    cost = measured_moe_cost(SHAPE, SPECS["nvidia-h100"], routing="balanced", **H100)
    whole = cost_model(SHAPE, SPECS["nvidia-h100"], **H100)
    parts = pass_cost(
        whole,
        first,
        stop,
        decode_rows=decode,
        context_tokens=100.0 * decode,
        window_tokens=0.0,
        prefill=rows,
        activations=0,
    )
    layers, num_rows = stop - first, decode + prompt
    values = SHAPE.experts_per_token * (3 * SHAPE.hidden + 6 * SHAPE.intermediate / 2) + SHAPE.hidden
    experts_s = parts.experts_s + layers * 110e-6 + layers * num_rows * values * 2 / (3.35e12 * 0.8)
    rest_s = whole.seconds(work) - experts_s
    assert cost.seconds(work) == pytest.approx(rest_s + layers * cost.layer_s(num_rows), rel=1e-9)


@pytest.mark.parametrize(("hardware", "rate_per_s"), [("nvidia-h100", 1.3), ("nvidia-a100", 0.5)])
def test_layered_prefill_wins_on_measured_layers_as_in_the_paper(hardware: str, rate_per_s: float) -> None:
    """Tables 6, 7 and 9: TTFT, TBT and expert loads are lower than under chunked prefill."""
    spec = SPECS[hardware]
    capacity = default_kv_capacity_tokens(SHAPE, spec, **H100)
    system = System(shape=SHAPE, spec=spec, kv_capacity_tokens=capacity, seed=0, moe_routing="power-law", **H100)
    lengths = workload("layered-arxiv").sample(60, seed=1, max_total_tokens=capacity).requests
    load = arriving(lengths, rate_per_s=rate_per_s, cv=None, seed=1)
    chunked, layered = (
        {metric.name: metric.value for metric in summarize(simulate(system, policy, {}, load), num_experts=128)}
        for policy in ("chunked", "layered")
    )
    for name in ("ttft_mean_s", "tbt_mean_s", "e2e_mean_s"):
        assert layered[name] < chunked[name]
    assert layered["expert_load_bytes"] < 0.65 * chunked["expert_load_bytes"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dtype": "fp8"}, "measured MoE layers are in bf16, not fp8"),
        (
            {"shape": decoder_shape("gpt-oss-20b")},
            "MoE layers of model gpt-oss-20b; there are qwen3-30b-a3b",
        ),
        ({"spec": SPECS["tpu-v5e"]}, "of device tpu-v5e; there are nvidia-a100, nvidia-h100"),
        ({"spec": SPECS["nvidia-a100"], "routing": "balanced"}, "of routing balanced; there are power-law"),
    ],
)
def test_what_was_not_measured_is_said(change: dict[str, object], words: str) -> None:
    asked = {"shape": SHAPE, "spec": SPECS["nvidia-h100"], "routing": "balanced", **H100} | change
    with pytest.raises(ConfigError, match=words):
        measured_moe_cost(asked.pop("shape"), asked.pop("spec"), **asked)
