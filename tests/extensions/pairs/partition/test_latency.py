"""The latency rules: lines for the GPU, stairs for the NPU, both at once, and where the signal is hidden."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.latency import LatencyModel, ends_together_s, line
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.profile import CopyLatency, GraphTime, Slowdown, SyncLatency
from pytest_npubench.extensions.pairs.partition.profiler import company_factors
from pytest_npubench.extensions.pairs.partition.strategies import strategy

from .profiles import COLS, ROWS, latency, profile

OPTIONS = SplitOptions(standard_sizes=(1, 64, 128), tile=32, decode_shares=(0.5,), prefill_shares=(0.5,))
POINTS = (
    latency(GPU, ROWS, 1, 10e-6),
    latency(GPU, ROWS, 100, 30e-6),
    latency(GPU, ROWS, 200, 70e-6),
    latency(GPU, 128, 1, 6e-6),
    latency(GPU, 128, 64, 20e-6),
    latency(NPU, ROWS, 64, 40e-6),
    latency(NPU, ROWS, 128, 60e-6),
    latency(NPU, 128, 1, 12e-6),
    latency(NPU, 128, 64, 25e-6),
)


def model(points=POINTS, **entries) -> LatencyModel:
    return LatencyModel(profile(points, OPTIONS, **entries))


def operator(tokens: int) -> Matmul:
    return Matmul(name="ffn_down", rows=ROWS, cols=COLS, tokens=tokens)


def only(name: str, tokens: int):
    (split,) = strategy(name).splits(operator(tokens), OPTIONS)
    return split


@pytest.mark.parametrize(
    ("tokens", "micros"), [(1, 10), (100, 30), (200, 70), (50.5, 20), (150, 50), (300, 110), (201, 70.4)]
)
def test_the_gpu_is_linear_through_its_points_and_past_the_last(tokens, micros):
    assert model().gpu_s(ROWS, COLS, tokens) == pytest.approx(micros * 1e-6)


@pytest.mark.parametrize(("tokens", "micros"), [(1, 10), (40, 10), (60, 10), (80, 20), (100, 30), (150, 50)])
def test_the_gpu_is_flat_up_to_its_threshold(tokens, micros):
    assert model(gpu_threshold_tokens=60.0).gpu_s(ROWS, COLS, tokens) == pytest.approx(micros * 1e-6)


@pytest.mark.parametrize("threshold", [0.5, 1.0, 100.0, 200.0, 500.0])
def test_a_threshold_that_is_no_place_between_two_points_changes_no_point(threshold):
    found = model(gpu_threshold_tokens=threshold)
    assert [found.gpu_s(ROWS, COLS, tokens) for tokens in (1, 100, 200)] == pytest.approx([10e-6, 30e-6, 70e-6])


def test_the_gpu_between_two_row_counts():
    assert model().gpu_s(192, COLS, 1) == pytest.approx(8e-6)


@given(
    heights=st.lists(st.floats(0, 1e3), min_size=1, max_size=6),
    at=st.floats(0, 100),
)
@settings(max_examples=100)
def test_a_line_stays_between_its_neighbours_and_never_falls_past_the_last(heights, at):
    points = [(float(10 * (index + 1)), height) for index, height in enumerate(heights)]
    value = line(points, at)
    below = [height for place, height in points if place <= at] or heights[:1]
    above = [height for place, height in points if place >= at]
    if above:
        assert min(below[-1], above[0]) - 1e-9 <= value <= max(below[-1], above[0]) + 1e-9
    else:
        assert value >= heights[-1]


@pytest.mark.parametrize(
    ("rows", "padded", "micros"), [(ROWS, 64, 40), (ROWS, 1, 40), (ROWS, 65, 60), (ROWS, 128, 60), (100, 2, 25)]
)
def test_the_npu_is_a_staircase(rows, padded, micros):
    """Each takes the time of the measured graph that holds it, never less."""
    assert model().npu_s(rows, COLS, padded) == pytest.approx(micros * 1e-6)


@pytest.mark.parametrize(("rows", "cols", "padded"), [(ROWS, COLS, 129), (ROWS + 1, COLS, 1), (ROWS, COLS + 1, 1)])
def test_what_no_measured_graph_holds_is_named(rows, cols, padded):
    with pytest.raises(PartitionError, match=rf"\[{rows}, {cols}\]"):
        model().npu_s(rows, cols, padded)


def test_single_units():
    sync = (
        SyncLatency(mechanism="flag", p50_s=3e-6, p99_s=4e-6),
        SyncLatency(mechanism="pipe", p50_s=9e-6, p99_s=1e-5),
    )
    found = model(syncs=sync, copies=(CopyLatency(num_bytes=100 * ROWS * 4, samples_s=(5e-6, 7e-6, 6e-6)),))
    assert found.predict(operator(100), only("gpu_only", 100)).total_s == pytest.approx(30e-6)
    npu = found.predict(operator(100), only("npu_only", 100))
    assert (npu.npu_s, npu.sync_s, npu.copy_s) == pytest.approx((60e-6, 3e-6, 6e-6))
    assert npu.total_s == pytest.approx(69e-6)
    assert found.predict(operator(100), only("npu_only", 100), "pipe").total_s == pytest.approx(75e-6)
    with pytest.raises(PartitionError, match="no synchronisation by 'event'; measured: flag, pipe"):
        found.predict(operator(100), only("npu_only", 100), "event")


@pytest.mark.parametrize(
    ("gpu_micros", "sync_inside", "copy_inside", "micros"),
    [
        *((20, False, False, 25 + 3 + 2), (20, True, False, 28 + 2), (20, False, True, 27 + 3), (20, True, True, 30)),
        *((50, False, False, 50 + 3 + 2), (50, True, False, 50 + 2), (50, False, True, 50 + 3), (50, True, True, 50)),
    ],
)
def test_both_units(gpu_micros, sync_inside, copy_inside, micros):
    """NPU 25 us: signal and copy follow it where it is slower; inside the maximum they are hidden behind the GPU."""
    slower = latency(GPU, 128, 64, gpu_micros * 1e-6)
    points = [slower if item.key == (GPU, 128, COLS, 64, False) else item for item in POINTS]
    found = model(
        points,
        syncs=(SyncLatency(mechanism="flag", p50_s=3e-6, p99_s=4e-6),),
        copies=(CopyLatency(num_bytes=128 * 64 * 4, samples_s=(2e-6,)),),
        prefill_sync_inside=sync_inside,
        copy_inside=copy_inside,
    )
    assert found.predict(operator(64), only("weight_centric", 64)).total_s == pytest.approx(micros * 1e-6)


def test_decode_and_prefill_hide_the_signal_each_for_itself():
    syncs = (SyncLatency(mechanism="flag", p50_s=1e-6, p99_s=4e-6),)
    points = [latency(GPU, 128, 1, 20e-6) if item.key == (GPU, 128, COLS, 1, False) else item for item in POINTS]
    found = model(points, syncs=syncs, decode_sync_inside=True)
    assert found.predict(operator(1), only("weight_centric", 1)).total_s == pytest.approx(20e-6)
    found = model(points, syncs=syncs, prefill_sync_inside=True)
    assert found.predict(operator(1), only("weight_centric", 1)).total_s == pytest.approx(21e-6)


def test_company_slows_as_long_as_there_is_company():
    assert ends_together_s(300, 400, (1.2, 1.25)) == pytest.approx((360, 472))
    assert ends_together_s(400, 300, (1.25, 1.2)) == pytest.approx((472, 360))
    assert ends_together_s(300, 400, (1, 1)) == (300, 400)


@settings(max_examples=100)
@given(gpu_s=st.floats(1e-5, 1e-2), npu_s=st.floats(1e-5, 1e-2), one=st.floats(1.01, 4), other=st.floats(1.01, 4))
def test_company_factors_are_the_inverse(gpu_s, npu_s, one, other):
    ends_s = ends_together_s(gpu_s, npu_s, (one, other))
    assert company_factors(gpu_s, npu_s, *ends_s) == pytest.approx((one, other), rel=1e-6)


def test_times_that_make_no_sense_give_no_factor():
    assert company_factors(1e-3, 1e-3, 1e-4, 5e-3) is None
    assert company_factors(1e-3, 1e-3, 0, 1e-3) is None
    assert company_factors(1e-3, 1e-6, 1e-3, 1e-3) is None


def test_the_slowdown_is_that_of_the_same_weight_at_the_nearest_length():
    factors = tuple(
        Slowdown(rows=rows, cols=COLS, tokens=tokens, gpu=(gpu, gpu, 9), npu=(2.0,))
        for rows, tokens, gpu in ((ROWS, 1, 1.1), (ROWS, 128, 1.3), (512, 64, 1.7))
    )
    found = model(slowdowns=factors)
    assert [found.slowdowns(operator(tokens))[0] for tokens in (1, 3, 64, 500)] == [1.1, 1.1, 1.3, 1.3]
    assert found.slowdowns(Matmul(name="other", rows=600, cols=COLS, tokens=64)) == (1.7, 2.0)
    assert model().slowdowns(operator(1)) == (1, 1)


def test_company_makes_no_unit_faster():
    noise = (Slowdown(rows=ROWS, cols=COLS, tokens=1, gpu=(0.9, 0.95, 1.2), npu=(0.98, 1.1, 1.05)),)
    assert model(slowdowns=noise).slowdowns(operator(1)) == (1, 1.05)


def test_a_graph_made_online_costs_its_making():
    found = model(graphs=(GraphTime(rows=ROWS, cols=COLS, tokens=64, compile_s=0.02),))
    prediction = found.predict(operator(100), only("online_prepare", 100))
    assert (prediction.compile_s, prediction.total_s) == pytest.approx((0.02, 0.02 + 61e-6))
    with pytest.raises(PartitionError, match="no graph's making was timed"):
        model().predict(operator(100), only("online_prepare", 100))
