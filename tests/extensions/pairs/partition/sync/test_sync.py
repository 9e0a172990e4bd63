"""Measurements of waiting: figures by hand on a pair with made-up times, samples that hold together on the host one."""

from __future__ import annotations

import pytest

from pytest_npubench.core.measurement import Phase
from pytest_npubench.errors import MeasurementError, PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, check_split
from pytest_npubench.extensions.pairs.partition.sync.contrast import measure_contrast
from pytest_npubench.extensions.pairs.partition.sync.overlap import measure_overlap
from pytest_npubench.extensions.pairs.partition.sync.round_trips import measure_round_trips
from pytest_npubench.extensions.pairs.partition.sync.splits import alone, row_split
from pytest_npubench.extensions.pairs.partition.units.host_pair import HostPair

from .fake_pair import FakePair

MATMUL = Matmul(name="q", rows=90, cols=16, tokens=3)


def test_round_trips_take_turns_and_leave_their_warm_up_out() -> None:
    fake = FakePair()
    flag, pipe = measure_round_trips(fake, num_trips=500, num_blocks=5)
    assert fake.trips == ["flag", "pipe"] * 5
    assert (flag.mechanism, len(flag.samples_s), max(flag.samples_s)) == ("flag", 500, pytest.approx(100e-6))
    assert flag.p50_s == pytest.approx(50.5e-6)
    assert pipe.p99_s == pytest.approx(99e-4, rel=1e-3)
    with pytest.raises(MeasurementError, match="3 round trips in 5 blocks"):
        measure_round_trips(fake, num_trips=3)


def test_contrast_is_the_best_single_unit_over_the_split() -> None:
    """90 rows: GPU alone 90 us, NPU alone 180 us; 60:30 takes 60 us and the waiting."""
    fake = FakePair()
    found = measure_contrast(fake, MATMUL, gpu_share=2 / 3, num_rounds=4)
    assert found.best_single_s == pytest.approx(90e-6)
    assert found.speedup("flag") == pytest.approx(90 / 61)
    assert found.speedup("pipe") == pytest.approx(90 / 160)
    assert found.sync_s("pipe") == pytest.approx(100e-6)
    rounds = [set(fake.runs[4 * i : 4 * i + 4]) for i in range(4)]
    arms = {("gpu_only", "flag"), ("npu_only", "flag"), ("rows_60_30", "flag"), ("rows_60_30", "pipe")}
    assert rounds == [arms] * 4, "every round has every arm once"
    assert len({tuple(fake.runs[4 * i : 4 * i + 4]) for i in range(4)}) > 1, "in an order of its own"


def test_overlap_says_what_is_exposed_in_each_order() -> None:
    """Decode, 60:30 rows: both take 60 us. Prefill, 30:60: the NPU's 120 us decide."""
    found = measure_overlap(FakePair(), MATMUL, gpu_shares=(2 / 3, 1 / 3), num_operators=10, num_rounds=3)
    by_arm = {(each.phase, each.mechanism): each for each in found}
    assert set(by_arm) == {(phase, name) for phase in (Phase.DECODE, Phase.PREFILL) for name in ("flag", "pipe")}
    decode, prefill = by_arm[Phase.DECODE, "pipe"], by_arm[Phase.PREFILL, "pipe"]
    assert decode.exposed_s == pytest.approx(100e-6)
    assert decode.slowdown == pytest.approx(160 / 60)
    assert prefill.slowdown == pytest.approx(220 / 120)
    assert by_arm[Phase.PREFILL, "flag"].exposed_s == pytest.approx(1e-6)
    assert prefill.gpu_longer_fraction == 0
    assert len(prefill.chains) == 3
    assert len(prefill.chains[0].operators) == 10


def test_splits_cover_the_operator() -> None:
    for split in (alone(MATMUL, GPU), alone(MATMUL, NPU), row_split(MATMUL), row_split(MATMUL, 0.011)):
        check_split(MATMUL, split)
    assert [part.num_rows for part in row_split(MATMUL, 0.25).parts] == [22, 68]
    for share in (0.0, 1.0, 0.001, 2.0):
        with pytest.raises(PartitionError, match="leaves a unit without any"):
            row_split(MATMUL, share)


def test_a_pair_without_chains_is_refused() -> None:
    class Plain:
        mechanisms = ("flag",)

    with pytest.raises(PartitionError, match="Plain runs single operators only"):
        measure_overlap(Plain(), MATMUL)  # type: ignore[arg-type]


def test_samples_of_the_host_pair_hold_together(pair: HostPair) -> None:
    for trips in measure_round_trips(pair, num_trips=20, num_blocks=2):
        assert 0 < trips.p50_s <= trips.p99_s
    contrast = measure_contrast(pair, MATMUL, num_rounds=3)
    assert set(contrast.shared) == set(pair.mechanisms)
    assert all(run.gpu_s and run.npu_s for runs in contrast.shared.values() for run in runs)
    assert all(run.npu_s is None for run in contrast.alone[GPU])
    for overlap in measure_overlap(pair, MATMUL, num_operators=3, num_rounds=2):
        assert len(overlap.chains) == 2
        assert overlap.exposed_s > 0
