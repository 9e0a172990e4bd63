"""`npubench partition`: profile a pair of compute units, plan a model's operators by it, explain one decision."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import (
    Commands,
    add_command,
    add_json_option,
    columns,
    length_count,
    number,
    print_document,
    say,
    seconds,
)
from pytest_npubench.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from pytest_npubench.extensions.pairs.partition.options import SplitOptions
    from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile
    from pytest_npubench.extensions.pairs.partition.profiler import ProfileProgress

TABLE_WIDTH = 160  # columns that a plan is printed in where its reader is no terminal
BUDGET_S = 120.0
SIZES = (1, 64, 128, 256)
LENGTHS = (1, 64, 128, 200, 256, 300)
TILE = 32


def add_profile_parser(actions: Commands) -> argparse.ArgumentParser:
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
    parser.set_defaults(run=run_profile)
    return parser


def run_profile(arguments: argparse.Namespace) -> int:
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


def add_plan_parser(actions: Commands) -> argparse.ArgumentParser:
    parser = add_command(
        actions,
        "plan",
        "say how each operator of a model is split at each length",
        "npubench partition plan --profile pair.json --model llama-8b-div4 --length 1 300",
    )
    parser.add_argument(
        "--length", metavar="S", type=length_count, nargs="+", help="token counts (default: the profile's)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with the parts of each split")
    parser.set_defaults(run=run_plan)
    return parser


def add_explain_parser(actions: Commands) -> argparse.ArgumentParser:
    parser = add_command(
        actions,
        "explain",
        "say why an operator is split as it is, and why not otherwise",
        "npubench partition explain --profile pair.json --model llama-8b-div4 --operator ffn_down --length 300",
    )
    parser.add_argument("--operator", metavar="NAME", required=True, help="one of the model's")
    parser.add_argument("--length", metavar="S", type=length_count, required=True, help="token count")
    add_json_option(parser)
    parser.set_defaults(run=run_explain)
    return parser


def run_plan(arguments: argparse.Namespace) -> int:
    """Raises StoreError for a file that is no profile, PartitionError for one of another machine or without what the
    plan needs, RegistryError for an unknown model or strategy."""
    from pytest_npubench.extensions.pairs.partition.model_shapes import operators
    from pytest_npubench.extensions.pairs.partition.plan import lengths_of, make_plan

    shapes, profile = operators(arguments.model), _profile(arguments)
    plan = make_plan(
        profile,
        arguments.model,
        shapes,
        arguments.length or lengths_of(profile),
        strategies=arguments.strategy,
        mechanism=arguments.mechanism,
    )
    if arguments.json:
        print(json.dumps(plan.to_json(), indent=1))
        return 0
    from pytest_npubench.core.plain_table import plain_console, written

    console = plain_console(max(shutil.get_terminal_size((TABLE_WIDTH, 24)).columns, TABLE_WIDTH))
    console.print(plan.table())
    print(written(console), end="")
    return 0


def run_explain(arguments: argparse.Namespace) -> int:
    """Raises as run_plan, and ConfigError for an operator that the model does not have."""
    from pytest_npubench.extensions.pairs.partition.model_shapes import operators
    from pytest_npubench.extensions.pairs.partition.solver import solve

    shapes = {shape.name: shape for shape in operators(arguments.model)}
    if arguments.operator not in shapes:
        hint = did_you_mean(arguments.operator, shapes)
        raise ConfigError(f"{arguments.model} has no operator {arguments.operator!r}; it has {', '.join(shapes)}{hint}")
    matmul = shapes[arguments.operator].matmul(arguments.length)
    decision = solve(_profile(arguments), matmul, strategies=arguments.strategy, mechanism=arguments.mechanism)
    if arguments.json:
        others = [other for other in decision.best_of_each if other.strategy != decision.strategy]
        print_document(
            "partition-explanation",
            operator=matmul.name,
            tokens=matmul.tokens,
            strategy=decision.strategy,
            mechanism=decision.mechanism,
            predicted_s=decision.predicted_s,
            others=[{"strategy": other.strategy, "predicted_s": other.predicted_s} for other in others],
            left_out=[{"strategy": name, "reason": reason} for name, reason in decision.left_out],
        )
        return 0
    print(decision.explain())
    return 0


def _profile(arguments: argparse.Namespace) -> PartitionProfile:
    """Held against this machine; the pair's units are not opened for it."""
    from pytest_npubench.extensions.pairs.partition.profile_file import machine_facts, read_profile

    return read_profile(arguments.profile, facts=machine_facts(), any_fingerprint=arguments.any_fingerprint)


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(
        commands,
        "partition",
        about,
        "npubench partition plan --profile pair.json --model llama-8b-div4",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    add_profile_parser(actions)
    for add in (add_plan_parser, add_explain_parser):
        _add_source(add(actions))


def _add_source(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", metavar="PATH", type=Path, required=True, help="a file of partition profile")
    parser.add_argument("--model", metavar="NAME", required=True, help="whose weight shapes, such as llama-8b-div4")
    parser.add_argument("--mechanism", metavar="NAME", help="of synchronisation (default: the profile's first)")
    parser.add_argument(
        "--strategy", metavar="NAME", action="append", help="choose from these only; baselines may be named too"
    )
    parser.add_argument(
        "--any-fingerprint", action="store_true", help="take a profile of another machine or other libraries"
    )
