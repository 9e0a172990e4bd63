"""Seconds of a binary, against sums by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from papers import published

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.core.measurement import Phase
from pytest_npubench.engines.binary_estimate import Estimate, estimate
from pytest_npubench.engines.binary_facts import BinaryFacts
from pytest_npubench.engines.shapes import dense_shape
from pytest_npubench.suites.hardware_files import load_all

SPEC = replace(load_all([default_directory()])["tpu-v6e"], tensor_parallel=1)  # 1.75 GHz, 1,640 GB/s
NOTHING = replace(BinaryFacts(**dict.fromkeys([one.name for one in fields(BinaryFacts)], 0.0)), kernel_cycles=None)


def priced(cycles: float, vector_cycles: float | None, vector_bytes: float | None) -> Estimate:
    facts = replace(NOTHING, cycles=cycles, vector_cycles=vector_cycles, vector_bytes=vector_bytes)
    return estimate(facts, SPEC, dense_shape("llama-3.2-1b"), Phase.DECODE, 128)


def test_overpriced_products_of_one_row_count_by_their_bytes() -> None:
    found = priced(cycles=5_303_393, vector_cycles=4_428_393, vector_bytes=1.05e9)
    assert found.cycles_s == pytest.approx(0.5e-3)  # 875,000 cycles
    assert found.vector_s == pytest.approx(1.05e9 / 1.640e12)
    assert found.total_s == pytest.approx(0.5e-3 + 0.640e-3, rel=1e-3)


@pytest.mark.parametrize(
    ("vector_cycles", "vector_bytes"),
    [
        pytest.param(2 * 1_750_000 * 0.99, 1.640e9, id="less than twice the bytes"),
        pytest.param(0.0, 0.0, id="none"),
        pytest.param(None, None, id="a record from before they were counted"),
    ],
)
def test_other_cycles_stay_as_the_compiler_says(vector_cycles: float | None, vector_bytes: float | None) -> None:
    found = priced(cycles=7_000_000, vector_cycles=vector_cycles, vector_bytes=vector_bytes)
    assert found.cycles_s == pytest.approx(4e-3)
    assert found.vector_s == 0.0


def test_what_a_price_takes_for_granted_is_said() -> None:
    links = replace(SPEC.peak, interconnect_bandwidth_bytes_per_s=SPEC.peak.memory_bandwidth_bytes_per_s)
    group, shape = replace(SPEC, tensor_parallel=4, peak=links), dense_shape("llama-3.2-1b")
    facts = replace(NOTHING, cycles=1e6, kernels=16.0, collectives=32.0, collective_bytes=1e6)
    prefill, decode = (estimate(facts, group, shape, phase, 128) for phase in Phase)
    collectives = "collectives at the links' full bandwidth"
    assert prefill.assumed == ("kernels at peak FLOP/s", collectives)
    assert decode.assumed == (collectives, "attention as XLA compiles it: a kernel in its place may take longer")
    assert estimate(replace(NOTHING, cycles=1e6), SPEC, shape, Phase.PREFILL, 128).assumed == ()


def test_kernels_count_by_their_machine_code_where_it_is_known() -> None:
    shape = dense_shape("llama-3.2-1b")
    facts = replace(NOTHING, cycles=1.75e6, kernels=16.0, kernel_cycles=3.5e6)
    found = estimate(facts, SPEC, shape, Phase.PREFILL, 2048)
    assert (found.kernels_s, found.total_s) == (pytest.approx(2e-3), pytest.approx(3e-3))
    assert found.assumed == ("kernels at a bundle a cycle, waiting for nothing",)
    at_peak = estimate(replace(facts, kernel_cycles=None), SPEC, shape, Phase.PREFILL, 2048)
    assert at_peak.kernels_s == pytest.approx(16 * 2 * 2048**2 * 32 * 64 / 918e12)


def test_v6e_operators_add_up_to_what_their_source_has() -> None:
    """Sums of the source's own rows, in us: layers of 128 to 2048 tokens."""
    table = published("tpu_v6e_operators").table("operators")
    layers = [sum(float(cell) for cell in row[3:9]) for row in table.rows if row[0] == "prefill"]
    assert layers == pytest.approx([303, 432, 871, 1920], rel=2e-3)
