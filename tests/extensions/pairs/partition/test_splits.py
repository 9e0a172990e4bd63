"""Splits that measurements of waiting need, and the pairs that chains run on."""

from __future__ import annotations

import pytest

from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, alone, check_split, row_split
from pytest_npubench.extensions.pairs.partition.unit import Chain, SplitTiming, runs_chains

MATMUL = Matmul(name="q", rows=90, cols=16, tokens=3)


def test_splits_cover_the_operator() -> None:
    for split in (alone(MATMUL, GPU), alone(MATMUL, NPU), row_split(MATMUL), row_split(MATMUL, 0.011)):
        check_split(MATMUL, split)
    assert [part.num_rows for part in row_split(MATMUL, 0.25).parts] == [22, 68]
    for share in (0.0, 1.0, 0.001, 2.0):
        with pytest.raises(PartitionError, match="leaves a unit without any"):
            row_split(MATMUL, share)


def test_a_chain_exposes_what_it_takes_beyond_its_slower_units() -> None:
    run = SplitTiming(total_s=110e-6, gpu_s=100e-6, npu_s=80e-6, sync_s=10e-6)
    assert Chain(total_s=1200e-6, operators=(run,) * 10).exposed_s == pytest.approx(20e-6)


def test_a_pair_without_chains_is_refused() -> None:
    class Plain:
        mechanisms = ("flag",)

    with pytest.raises(PartitionError, match="Plain runs single operators only"):
        runs_chains(Plain())  # type: ignore[arg-type]
