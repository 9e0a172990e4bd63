"""How good the solver's decisions are on this machine's pair of units: profile, decide, measure every split, compare.

    python benchmarks/partition_regret.py                      under 6 minutes on two quiet cores
    python benchmarks/partition_regret.py --model llama-8b-div8 --lengths 1 64 300 --profile-s 30 --rounds 6

Each line is one operator and length: the decision, the best split by exhaustive measuring (chosen in one half of the
rounds, all times from the other half), regret, prediction error, and the gain over the best single unit. Then median
and 90th percentile over all lines. Every output is held against numpy in float64. Nothing else should run on the cores.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.model_shapes import distinct, operators
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.output_check import check_split_computes, exact_product
from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile
from pytest_npubench.extensions.pairs.partition.profile_file import write_profile
from pytest_npubench.extensions.pairs.partition.profiler import measure_profile
from pytest_npubench.extensions.pairs.partition.regret import (
    MIN_ROUNDS,
    MeasuredSplits,
    Regret,
    regret_between,
    summarize,
)
from pytest_npubench.extensions.pairs.partition.solver import solve, split_text
from pytest_npubench.extensions.pairs.partition.strategies import all_splits
from pytest_npubench.extensions.pairs.partition.unit import UnitPair, visit
from pytest_npubench.extensions.pairs.partition.units import open_pair

SIZES = (1, 64, 128, 256)
LENGTHS = (1, 64, 100, 128, 200, 256, 300)


def main() -> None:
    arguments = parsed()
    options = SplitOptions(standard_sizes=tuple(arguments.sizes), tile=arguments.tile, max_small_parts=2)
    begin_s = perf_counter()
    pair = open_pair(arguments.pair, standard_sizes=options.standard_sizes, tile=options.tile)
    try:
        shapes = distinct(operators(arguments.model))
        profile = measure_profile(
            pair,
            shapes,
            arguments.lengths,
            budget_s=arguments.profile_s,
            options=options,
            mechanism=arguments.mechanism,
        )
        if arguments.profile:
            write_profile(arguments.profile, profile)
        show_profile(profile, perf_counter() - begin_s)
        regrets = []
        for shape in shapes:
            for tokens in arguments.lengths:
                regrets.append(one(pair, profile, shape.matmul(tokens), arguments.rounds, arguments.mechanism))
            pair.unload()
    finally:
        pair.close()
    show_summary(regrets, perf_counter() - begin_s)


def one(pair: UnitPair, profile: PartitionProfile, matmul: Matmul, rounds: int, mechanism: str | None) -> Regret:
    decision = solve(profile, matmul, mechanism=mechanism)
    measured = exhaustive(pair, matmul, all_splits(matmul, profile.options), rounds=rounds, mechanism=mechanism)
    found = regret_between(decision.split, decision.predicted_s, measured)
    shape = f"[{matmul.rows}, {matmul.cols}] x {matmul.tokens}"
    print(
        f"{shape:22} {decision.strategy:19}{split_text(matmul, found.decided):45}{found.decided_s * 1e3:8.3f} ms"
        f"  regret {found.regret:+7.1%}  predicted {found.prediction_error:+7.1%}  gain x{found.speedup or 0:.2f}"
        f"  best {found.best.strategy} {split_text(matmul, found.best)} {found.best_s * 1e3:.3f} ms"
        f" of {len(measured.splits)}",
        flush=True,
    )
    return found


def exhaustive(
    pair: UnitPair,
    matmul: Matmul,
    splits: Sequence[Split],
    *,
    rounds: int = 10,
    seed: int = 0,
    mechanism: str | None = None,
) -> MeasuredSplits:
    """Load them, check every output against float64, and run all in each round, shuffled anew.

    Raises PartitionError below 4 rounds and on no split, MeasurementError where an output is wrong.
    """
    if rounds < MIN_ROUNDS or not splits:
        raise PartitionError(f"{rounds} rounds of {len(splits)} splits; want {MIN_ROUNDS} or more of at least one")
    wanted = tuple(dict.fromkeys(splits))
    pair.load(matmul, wanted)
    exact = exact_product(pair, matmul)
    for split in wanted:
        check_split_computes(pair, exact, split)
    samples_s: dict[Split, list[float]] = {split: [] for split in wanted}
    order, shuffler = list(wanted), random.Random(seed)
    for _ in range(rounds):
        shuffler.shuffle(order)
        for split in order:
            samples_s[split].append(visit(pair, matmul, split, mechanism).total_s)
    return MeasuredSplits(
        matmul=matmul,
        splits=wanted,
        samples_s=tuple(tuple(samples_s[split]) for split in wanted),
    )


def show_profile(profile: PartitionProfile, seconds: float) -> None:
    syncs = ", ".join(f"{sync.mechanism} {sync.p50_s * 1e6:.1f}/{sync.p99_s * 1e6:.1f} us" for sync in profile.syncs)
    print(
        f"profile of {len(profile.latencies)} points in {seconds:.0f} s"
        f"{'' if profile.is_finished else ' (unfinished)'}; sync p50/p99 {syncs}; inside the maximum: decode"
        f" {profile.decode_sync_inside}, prefill {profile.prefill_sync_inside}, copy {profile.copy_inside}; GPU-1"
        f" threshold {profile.gpu_threshold_tokens} tokens"
    )
    for item in profile.slowdowns:
        print(f"  slowdown [{item.rows}, {item.cols}] x {item.tokens}: {item.gpu_factor:.2f} {item.npu_factor:.2f}")


def show_summary(regrets: list[Regret], seconds: float) -> None:
    summary = summarize(regrets)
    print(
        f"\n{summary.num} operators and lengths in {seconds:.0f} s: regret median {summary.median_regret:.1%},"
        f" p90 {summary.p90_regret:.1%} (want 5 % and 15 %); prediction error median {summary.median_error:.1%},"
        f" p90 {summary.p90_error:.1%}; largest gain over a single unit x{summary.largest_speedup or 0:.2f} (want x1.5)"
    )


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description="Regret of the partition solver on a pair of units."
    )
    parser.add_argument("--pair", default="host")
    parser.add_argument("--model", default="llama-8b-div4")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="standard sizes of the static unit")
    parser.add_argument("--tile", type=int, default=32)
    parser.add_argument("--mechanism", help="of synchronisation (default: the pair's fastest)")
    parser.add_argument("--profile-s", type=float, default=120.0)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--profile", type=Path, help="write the profile there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
