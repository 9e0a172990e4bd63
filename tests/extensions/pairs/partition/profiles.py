"""Profiles made up for tests: every part that the options can ask for, with times by formula or at random."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.profile import (
    CopyLatency,
    GraphTime,
    PartitionProfile,
    PartLatency,
    Slowdown,
    SyncLatency,
)

ROWS, COLS = 256, 64


def latency(unit: str, rows: int, tokens: int, *samples_s: float, cols: int = COLS) -> PartLatency:
    return PartLatency(unit=unit, rows=rows, cols=cols, tokens=tokens, samples_s=samples_s)


def profile(latencies: Sequence[PartLatency], options: SplitOptions, **entries: object) -> PartitionProfile:
    given = {"syncs": (SyncLatency(mechanism="flag", p50_s=1e-6, p99_s=2e-6),), "fingerprint": ()} | entries
    return PartitionProfile(options=options, latencies=tuple(latencies), **given)


def full_profile(
    options: SplitOptions,
    lengths: Sequence[int],
    gpu_s: Callable[[int, int], float],
    npu_s: Callable[[int, int], float],
    **entries: object,
) -> PartitionProfile:
    """Times by (rows, tokens) for every length up to the longest, every standard size and every share."""
    longest = max(lengths)
    npu_rows = {rows for tokens in (1, 2) for rows in options.npu_rows(ROWS, tokens)}
    latencies = [latency(GPU, ROWS, tokens, gpu_s(ROWS, tokens)) for tokens in range(1, longest + 1)]
    latencies += [
        latency(GPU, ROWS - rows, tokens, gpu_s(ROWS - rows, tokens)) for rows in npu_rows for tokens in lengths
    ]
    latencies += [
        latency(NPU, rows, size, npu_s(rows, size)) for rows in (ROWS, *npu_rows) for size in options.standard_sizes
    ]
    return profile(latencies, options, **entries)


def random_profile(seed: int, options: SplitOptions, lengths: Sequence[int]) -> PartitionProfile:
    """Times without any order, and every other term at random too."""
    drawn = random.Random(seed)

    def time_s(_rows: int, _tokens: int) -> float:
        return drawn.uniform(1e-6, 1e-3)

    return full_profile(
        options,
        lengths,
        time_s,
        time_s,
        slowdowns=tuple(
            Slowdown(rows=ROWS, cols=COLS, tokens=tokens, gpu=(drawn.uniform(1, 3),), npu=(drawn.uniform(1, 3),))
            for tokens in (1, 100)
        ),
        copies=(CopyLatency(num_bytes=1000, samples_s=(1e-5,)), CopyLatency(num_bytes=100_000, samples_s=(1e-4,))),
        graphs=(GraphTime(rows=ROWS, cols=COLS, tokens=64, compile_s=0.02),),
        syncs=(SyncLatency(mechanism="flag", p50_s=drawn.uniform(0, 3e-4), p99_s=1.0),),
        decode_sync_inside=drawn.random() < 0.5,
        prefill_sync_inside=drawn.random() < 0.5,
        copy_inside=drawn.random() < 0.5,
    )
