"""`npubench partition profile`: measure a pair of units with the weights of a model, into a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import (
    add_command,
    add_json_option,
    columns,
    length_count,
    number,
    print_document,
    say,
    seconds,
)

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands
    from pytest_npubench.extensions.pairs.partition.options import SplitOptions
    from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile
    from pytest_npubench.extensions.pairs.partition.profiler import ProfileProgress

BUDGET_S = 120.0
SIZES = (1, 64, 128, 256)
LENGTHS = (1, 64, 128, 200, 256, 300)
TILE = 32


def add_parser(actions: Commands) -> argparse.ArgumentParser:
    parser = add_command(
        actions,
        "profile",
        "measure a pair of units with a model's weights",
        "npubench partition profile --pair host --model llama-8b-div4 --output pair.json",
    )
    parser.add_argument("--pair", metavar="NAME", default="host", help="the units (default host)")
    parser.add_argument("--model", metavar="NAME", required=True, help="whose weight shapes, such as llama-8b-div4")
    parser.add_argument("-o", "--output", metavar="PATH", type=Path, required=True, help="the file to write")
    parser.add_argument("--length", metavar="S", type=length_count, nargs="+", default=LENGTHS, help="token counts")
    parser.add_argument(
        "--size",
        metavar="S",
        type=length_count,
        nargs="+",
        default=SIZES,
        help="token counts with static graphs",
    )
    parser.add_argument("--tile", metavar="ROWS", type=length_count, default=TILE, help=f"default {TILE}")
    parser.add_argument("--decode-shares", metavar="F", type=_share, nargs="+", help="the GPU's shares of the rows")
    parser.add_argument("--prefill-shares", metavar="F", type=_share, nargs="+", help="likewise, above 1 token")
    parser.add_argument("--mechanism", metavar="NAME", help="of synchronisation (default: the pair's fastest)")
    parser.add_argument("--budget", metavar="SECONDS", type=seconds, help=f"default {BUDGET_S:g}; what is left out")
    parser.add_argument("--resume", action="store_true", help="go on with the file, where it is there and unfinished")
    add_json_option(parser)
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Raises RegistryError for an unknown pair or model, PartitionError for options that cannot be,
    DeviceError where the pair cannot be had or dies, StoreError where a file cannot be read or written."""
    from pytest_npubench.extensions.pairs.partition.profile_file import read_profile, write_profile

    unfinished = read_profile(arguments.output) if arguments.resume and arguments.output.exists() else None
    profile = _measured(arguments, unfinished)
    write_profile(arguments.output, profile)
    if arguments.json:
        return _print_json(arguments, profile)
    print("\n".join(_summary(profile)))
    say(f"wrote   {arguments.output}")
    return 0


def _measured(arguments: argparse.Namespace, unfinished: PartitionProfile | None) -> PartitionProfile:
    from pytest_npubench.extensions.pairs.partition.model_shapes import operators
    from pytest_npubench.extensions.pairs.partition.profiler import measure_profile
    from pytest_npubench.extensions.pairs.partition.units import open_pair

    options, shapes = _options(arguments), operators(arguments.model)
    pair = open_pair(arguments.pair, standard_sizes=options.standard_sizes, tile=options.tile)
    try:
        return measure_profile(
            pair,
            shapes,
            arguments.length,
            budget_s=arguments.budget or BUDGET_S,
            options=options,
            mechanism=arguments.mechanism,
            on_progress=_show,
            unfinished=unfinished,
        )
    finally:
        pair.close()


def _print_json(arguments: argparse.Namespace, profile: PartitionProfile) -> int:
    """What became of the measurement; the profile itself is in the file."""
    print_document(
        "partition-profile-written",
        output=arguments.output,
        is_finished=profile.is_finished,
        num_points=len(profile.latencies),
        syncs=[{"mechanism": item.mechanism, "p50_s": item.p50_s, "p99_s": item.p99_s} for item in profile.syncs],
    )
    return 0


def _share(text: str) -> float:
    return number(text, "a number, such as 0.25", lambda value: True)  # what it may be the splits say


def _options(arguments: argparse.Namespace) -> SplitOptions:
    from pytest_npubench.extensions.pairs.partition.options import FIFTHS, QUARTERS, SplitOptions

    return SplitOptions(
        standard_sizes=tuple(arguments.size),
        tile=arguments.tile,
        decode_shares=tuple(arguments.decode_shares or QUARTERS),
        prefill_shares=tuple(arguments.prefill_shares or FIFTHS),
    )


def _show(progress: ProfileProgress) -> None:
    print(
        f"[{progress.number}/{progress.num_operators}] {progress.operator}: round {progress.num_rounds},"
        f" {progress.elapsed_s:.0f} s so far",
        file=sys.stderr,
    )


def _summary(profile: PartitionProfile) -> list[str]:
    rows = [("sync", "p50", "p99")]
    rows += [(item.mechanism, f"{item.p50_s * 1e6:.1f} us", f"{item.p99_s * 1e6:.1f} us") for item in profile.syncs]
    state = "finished" if profile.is_finished else "unfinished: raise --budget, or go on with --resume"
    factors = [item for slowdown in profile.slowdowns for item in (slowdown.gpu_factor, slowdown.npu_factor)]
    beside = f", slower beside each other by x{min(factors):.2f} to x{max(factors):.2f}" if factors else ""
    return [f"points  {len(profile.latencies)}{beside}; {state}", columns(rows)]
