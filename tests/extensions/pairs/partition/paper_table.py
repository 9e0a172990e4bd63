"""HeteroInfer's Table 3 as profiles: its latencies at the full operators, shares of the rows in proportion.

The table prints whole operators only, so a share of a third takes a third of the time here, as the solver's inputs in
the paper must have been scaled; contention and synchronisation are those of the test. [4096, 14336] x 384 is the end of
the last row's range, at which its NPU column has 32k.
"""

from __future__ import annotations

from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.profile import (
    PartitionProfile,
    PartKey,
    PartLatency,
    Slowdown,
    SyncLatency,
)

# (rows, cols): tokens: (GPU us, NPU us)
DECODE = {(4096, 4096): (511, 693), (28672, 4096): (1903, 3886), (4096, 14336): (1467, 6506)}
PREFILL = {
    (4096, 4096): {128: (7306, 912), 256: (10841, 1884)},
    (4096, 14336): {256: (35231, 23445), 384: (50_000, 32_000)},
}
TILE = 32


def matmul(rows: int, cols: int, tokens: int) -> Matmul:
    return Matmul(name="operator", rows=rows, cols=cols, tokens=tokens)


def decode_profile(*, sync_us: float, contention: float) -> PartitionProfile:
    points = {(rows, cols, 1): times for (rows, cols), times in DECODE.items()}
    return _profile(points, SplitOptions(standard_sizes=(1,), tile=TILE), sync_us, contention)


def prefill_profile(rows: int, cols: int, *, sync_us: float, contention: float) -> PartitionProfile:
    """Of one weight; one token on the GPU is the decode row's time, which the line to the first length begins at."""
    points = {(rows, cols, tokens): times for tokens, times in PREFILL[rows, cols].items()}
    sizes = tuple(PREFILL[rows, cols])
    profile = _profile(points, SplitOptions(standard_sizes=sizes, tile=TILE), sync_us, contention)
    one = PartLatency(unit=GPU, rows=rows, cols=cols, tokens=1, samples_s=(DECODE[rows, cols][0] * 1e-6,))
    return PartitionProfile(
        fingerprint=(),
        options=profile.options,
        latencies=(*profile.latencies, one),
        slowdowns=profile.slowdowns,
        syncs=profile.syncs,
    )


def _profile(
    points: dict[tuple[int, int, int], tuple[float, float]], options: SplitOptions, sync_us: float, contention: float
) -> PartitionProfile:
    latencies: dict[PartKey, PartLatency] = {}
    for (rows, cols, tokens), times_us in points.items():
        npu_shares = (rows, *options.npu_rows(rows, tokens))
        shares = {GPU: (rows, *(rows - npu_rows for npu_rows in npu_shares[1:])), NPU: npu_shares}
        for unit, whole_us in zip((GPU, NPU), times_us, strict=True):
            for part in shares[unit]:
                latency = PartLatency(
                    unit=unit, rows=part, cols=cols, tokens=tokens, samples_s=(whole_us * 1e-6 * part / rows,)
                )
                latencies[latency.key] = latency
    return PartitionProfile(
        fingerprint=(),
        options=options,
        latencies=tuple(latencies.values()),
        slowdowns=(Slowdown(rows=4096, cols=4096, tokens=1, gpu=(contention,), npu=(contention,)),),
        syncs=(SyncLatency(mechanism="flag", p50_s=sync_us * 1e-6, p99_s=sync_us * 1e-6),),
    )
