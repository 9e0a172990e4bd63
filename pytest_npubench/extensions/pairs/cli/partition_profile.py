"""`npubench partition profile`: measure a pair of units with the weights of a model, into a file.

A pair "aihub:PHONE" is the GPU and the NPU of a phone of Qualcomm AI Hub, each measured alone by jobs that cost quota.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
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
    whole_number,
)
from pytest_npubench.errors import ConfigError

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands
    from pytest_npubench.extensions.pairs.partition.options import SplitOptions
    from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile
    from pytest_npubench.extensions.pairs.partition.profiler import ProfileProgress

BUDGET_S = 120.0
SIZES = (1, 64, 128, 256)
LENGTHS = (1, 64, 128, 200, 256, 300)
TILE = 32
HUB = "aihub:"
MAX_JOBS = 100
job_count = whole_number(10_000)
SYNC_US = 400.0
PAIR_OPTIONS = ("budget", "mechanism")
HUB_OPTIONS = ("max_jobs", "sync")


def add_parser(actions: Commands) -> argparse.ArgumentParser:
    parser = add_command(
        actions,
        "profile",
        "measure a pair of units with a model's weights",
        "npubench partition profile --pair host --model llama-8b-div4 --output pair.json",
    )
    parser.add_argument(
        "--pair",
        metavar="NAME",
        default="host",
        help=f'the units (default host); "{HUB}Samsung Galaxy S24": of a phone of Qualcomm AI Hub, each alone, by jobs',
    )
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
    parser.add_argument(
        "--max-jobs",
        metavar="N",
        type=job_count,
        help=f"{HUB} only: submit at most so many (default {MAX_JOBS})",
    )
    parser.add_argument(
        "--sync", metavar="MICROSECONDS", type=_microseconds, help=f"{HUB} only: what is assumed (default {SYNC_US:g})"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the file, where it is there and unfinished")
    add_json_option(parser)
    parser.set_defaults(run=run)
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Raises RegistryError for an unknown pair or model, PartitionError for options that cannot be, ConfigError for
    options of another kind of pair, DeviceError where the pair cannot be had or dies, MeasurementError where every job
    failed, StoreError where a file cannot be read or written."""
    from pytest_npubench.extensions.pairs.partition.profile_file import read_profile, write_profile

    is_hub = arguments.pair.startswith(HUB)
    _refuse(arguments, PAIR_OPTIONS if is_hub else HUB_OPTIONS)
    unfinished = read_profile(arguments.output) if arguments.resume and arguments.output.exists() else None
    if is_hub:
        return _run_on_hub(arguments, unfinished)
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


def _run_on_hub(arguments: argparse.Namespace, unfinished: PartitionProfile | None) -> int:
    """The jobs' ids lie in OUTPUT.jobs. A result is settled after the profile that holds it is on disk."""
    from pytest_npubench.backends.qualcomm import open_named
    from pytest_npubench.extensions.pairs.partition.model_shapes import operators
    from pytest_npubench.extensions.pairs.partition.profile_file import write_profile
    from pytest_npubench.extensions.pairs.phone_profile import PhoneProfiler

    options, shapes = _options(arguments), operators(arguments.model)
    profiler = PhoneProfiler(
        open_named(arguments.pair.removeprefix(HUB)),
        arguments.output.with_name(f"{arguments.output.name}.jobs"),
        stage=lambda text: print(text, file=sys.stderr),
    )
    found = profiler.measure(
        shapes,
        arguments.length,
        options,
        max_jobs=arguments.max_jobs or MAX_JOBS,
        sync_s=(SYNC_US if arguments.sync is None else arguments.sync) * 1e-6,
        unfinished=unfinished,
    )
    write_profile(arguments.output, found.profile)
    profiler.settle(found)
    if arguments.json:
        return _print_json(arguments, found.profile, failures=found.failures, num_left_out=found.num_left_out)
    print("\n".join(_summary(found.profile, "--max-jobs")))
    say(f"note    {found.profile.note}")
    for name, reason in found.failures.items():
        say(f"failed  {name}: {reason}")
    if found.num_left_out:
        say(f"left    {found.num_left_out} points that --max-jobs has no job for")
    say(f"wrote   {arguments.output}")
    return 0


def _print_json(
    arguments: argparse.Namespace,
    profile: PartitionProfile,
    *,
    failures: Mapping[str, str] = MappingProxyType({}),
    num_left_out: int = 0,
) -> int:
    """What became of the measurement; the profile itself is in the file. Only jobs fail or are left out."""
    print_document(
        "partition-profile-written",
        output=arguments.output,
        is_finished=profile.is_finished,
        num_points=len(profile.latencies),
        syncs=[{"mechanism": item.mechanism, "p50_s": item.p50_s, "p99_s": item.p99_s} for item in profile.syncs],
        note=profile.note,
        failures=dict(failures),
        num_left_out=num_left_out,
    )
    return 0


def _refuse(arguments: argparse.Namespace, names: tuple[str, ...]) -> None:
    for name in names:
        if getattr(arguments, name) is not None:
            raise ConfigError(f"--{name.replace('_', '-')} means nothing with --pair {arguments.pair}")


def _microseconds(text: str) -> float:
    return number(text, "microseconds from 0 to 1000000", lambda value: 0 <= value <= 1e6)


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


def _summary(profile: PartitionProfile, limit: str = "--budget") -> list[str]:
    rows = [("sync", "p50", "p99")]
    rows += [(item.mechanism, f"{item.p50_s * 1e6:.1f} us", f"{item.p99_s * 1e6:.1f} us") for item in profile.syncs]
    state = "finished" if profile.is_finished else f"unfinished: raise {limit}, or go on with --resume"
    factors = [item for slowdown in profile.slowdowns for item in (slowdown.gpu_factor, slowdown.npu_factor)]
    beside = f", slower beside each other by x{min(factors):.2f} to x{max(factors):.2f}" if factors else ""
    return [f"points  {len(profile.latencies)}{beside}; {state}", columns(rows)]
