"""What a pair of units offers on this machine: splits against single units, waiting, bandwidth.

    python benchmarks/partition_pair.py [pair] [rounds]

Rows are shared 1:1, arms interleaved in shuffled order. best single / split: above 1 the split is faster. Exposed: what
a dependent operator costs beyond its slower unit, in decode order (GPU longer) and prefill order (NPU longer).
"""

import sys

import numpy as np

from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, Split, alone, row_split
from pytest_npubench.extensions.pairs.partition.unit import Chain, SplitTiming, UnitPair, runs_chains
from pytest_npubench.extensions.pairs.partition.units import open_pair

# tokens, cols, rows
SHAPES = ((1, 1024, 1024), (1, 1024, 4096), (1, 4096, 4096), (16, 1024, 1024), (64, 1024, 1024), (256, 1024, 4096))
STREAM_BYTES = 256 << 20
NUM_BLOCKS, TRIPS_A_BLOCK = 5, 200
GPU_SHARES = {Phase.DECODE: 0.75, Phase.PREFILL: 0.25}
NUM_OPERATORS = 16


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
    """Mechanisms take turns in blocks, so that a slow spell of the machine meets all; a block warms up first."""
    trips_s: dict[str, list[float]] = {mechanism: [] for mechanism in pair.mechanisms}
    for _ in range(NUM_BLOCKS):
        for mechanism, samples_s in trips_s.items():
            samples_s.extend(pair.round_trips_s(mechanism, TRIPS_A_BLOCK + 1)[1:])
    print("\nround trip, us        p50      p99")
    for mechanism, samples_s in trips_s.items():
        p50_s, p99_s = np.percentile(samples_s, (50, 99))
        print(f"{mechanism:16}{p50_s * 1e6:9.1f}{p99_s * 1e6:9.1f}")


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
    print(f"\n{'rows x cols x tokens':24}{'best single, us':>16}{names}")
    for tokens, cols, rows in SHAPES:
        alone_s, split_s = medians_s(pair, Matmul(name="operator", rows=rows, cols=cols, tokens=tokens), num_rounds)
        ratios = "".join(f"{alone_s / seconds:10.2f}" for seconds in split_s)
        print(f"{f'{rows} x {cols} x {tokens}':24}{alone_s * 1e6:16.0f}{ratios}")
        pair.unload()


def medians_s(pair: UnitPair, matmul: Matmul, num_rounds: int) -> tuple[float, list[float]]:
    """The faster unit alone, and the split under each mechanism. All arms run once a round in shuffled order."""
    single, split = [alone(matmul, unit) for unit in (GPU, NPU)], row_split(matmul)
    pair.load(matmul, (*single, split))
    arms: list[tuple[Split, str]] = [(each, pair.mechanisms[0]) for each in single]
    arms += [(split, mechanism) for mechanism in pair.mechanisms]
    totals_s: list[list[float]] = [[] for _ in arms]
    generator = np.random.default_rng(0)
    for _ in range(num_rounds):
        for index in generator.permutation(len(arms)).tolist():
            chosen, mechanism = arms[index]
            totals_s[index].append(pair.run(matmul, chosen, mechanism=mechanism).total_s)
    medians = [float(np.median(samples_s)) for samples_s in totals_s]
    return min(medians[:2]), medians[2:]


def print_overlap(pair: UnitPair, num_rounds: int) -> None:
    """Chains of dependent operators beside the same operators without dependencies (`queued`: one submission)."""
    matmul, on_chains = Matmul(name="operator", rows=1024, cols=1024, tokens=1), runs_chains(pair)
    orders = {phase: row_split(matmul, share) for phase, share in GPU_SHARES.items()}
    pair.load(matmul, tuple(orders.values()))
    arms = [(phase, mechanism) for phase in orders for mechanism in pair.mechanisms]
    chains: dict[tuple[Phase, str], list[Chain]] = {arm: [] for arm in arms}
    queued: dict[Phase, list[SplitTiming]] = {phase: [] for phase in orders}
    generator = np.random.default_rng(0)
    for _ in range(max(num_rounds // 5, 3)):
        for index in generator.permutation(len(arms)).tolist():
            phase, mechanism = arms[index]
            total_s, runs = on_chains.run_chain(matmul, orders[phase], NUM_OPERATORS, mechanism=mechanism)
            chains[phase, mechanism].append(Chain(total_s=total_s, operators=runs))
        for phase, split in orders.items():
            queued[phase].append(on_chains.run_queued(matmul, split, NUM_OPERATORS))
    print(f"\nchain of {matmul.rows} x {matmul.cols} x 1       exposed, us   chain / queued   gpu longer")
    for (phase, mechanism), measured in chains.items():
        exposed_s = np.median([chain.exposed_s for chain in measured])
        queued_s = np.median([run.total_s for run in queued[phase]])
        longer = [(run.gpu_s or 0.0) > (run.npu_s or 0.0) for chain in measured for run in chain.operators]
        slowdown = np.median([chain.total_s for chain in measured]) / queued_s
        print(f"{phase.value:10}{mechanism:20}{exposed_s * 1e6:12.1f}{slowdown:17.2f}{np.mean(longer):13.0%}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "host", int(sys.argv[2]) if len(sys.argv) > 2 else 50)
