"""What a pair of units offers on this machine: splits against single units, waiting, bandwidth.

    python benchmarks/partition_pair.py [pair] [rounds]

Rows are shared 1:1, arms interleaved in shuffled order. best single / split: above 1 the split is faster. Exposed: what
a dependent operator costs beyond its slower unit, in decode order (GPU longer) and prefill order (NPU longer).
"""

import sys

from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul
from pytest_npubench.extensions.pairs.partition.sync.contrast import measure_contrast
from pytest_npubench.extensions.pairs.partition.sync.overlap import measure_overlap
from pytest_npubench.extensions.pairs.partition.sync.round_trips import measure_round_trips
from pytest_npubench.extensions.pairs.partition.unit import UnitPair
from pytest_npubench.extensions.pairs.partition.units import open_pair

# tokens, cols, rows
SHAPES = ((1, 1024, 1024), (1, 1024, 4096), (1, 4096, 4096), (16, 1024, 1024), (64, 1024, 1024), (256, 1024, 4096))
STREAM_BYTES = 256 << 20


def main(name: str, num_rounds: int) -> None:
    pair = open_pair(name, standard_sizes=(64, 128, 256))
    try:
        print(f"{name}: {pair.gpu.name} (gpu), {pair.npu.name} (npu)")
        print_round_trips(pair)
        print_bandwidth(pair)
        print_contrasts(pair, num_rounds)
        print_overlap(pair, num_rounds)
    finally:
        pair.close()


def print_round_trips(pair: UnitPair) -> None:
    print("\nround trip, us        p50      p99")
    for trips in measure_round_trips(pair):
        print(f"{trips.mechanism:16}{trips.p50_s * 1e6:9.1f}{trips.p99_s * 1e6:9.1f}")


def print_bandwidth(pair: UnitPair) -> None:
    print(f"\nreading {STREAM_BYTES >> 20} MiB, GB/s")
    alone = {unit: pair.stream_bytes_per_s((unit,), STREAM_BYTES)[unit] for unit in (GPU, NPU)}
    together = pair.stream_bytes_per_s((GPU, NPU), STREAM_BYTES)
    for unit, rate in alone.items():
        print(f"{unit} alone {rate / 1e9:.1f}, beside the other {together[unit] / 1e9:.1f}")
    both = sum(together.values())
    print(f"both {both / 1e9:.1f}: x{both / max(alone.values()):.2f} of the better one")


def print_contrasts(pair: UnitPair, num_rounds: int) -> None:
    names = "".join(f"{name:>10}" for name in pair.mechanisms)
    names = "".join(f"{name:>10}" for name in pair.mechanisms)
    print(f"\n{'rows x cols x tokens':24}{'best single, us':>16}{names}")
    for tokens, cols, rows in SHAPES:
        matmul = Matmul(name="operator", rows=rows, cols=cols, tokens=tokens)
        found = measure_contrast(pair, matmul, num_rounds=num_rounds)
        ratios = "".join(f"{found.speedup(name):10.2f}" for name in pair.mechanisms)
        print(f"{f'{rows} x {cols} x {tokens}':24}{found.best_single_s * 1e6:16.0f}{ratios}")
        pair.unload()


def print_overlap(pair: UnitPair, num_rounds: int) -> None:
    matmul = Matmul(name="operator", rows=1024, cols=1024, tokens=1)
    print(f"\nchain of {matmul.rows} x {matmul.cols} x 1       exposed, us   chain / queued   gpu longer")
    for found in measure_overlap(pair, matmul, num_rounds=max(num_rounds // 5, 3)):
        figures = f"{found.exposed_s * 1e6:12.1f}{found.slowdown:17.2f}{found.gpu_longer_fraction:13.0%}"
        print(f"{found.phase.value:10}{found.mechanism:20}{figures}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "host", int(sys.argv[2]) if len(sys.argv) > 2 else 50)
