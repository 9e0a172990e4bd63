"""`npubench partition plan` and `explain`: what a profile says about a model's operators."""

from __future__ import annotations

import argparse
import json
import shutil
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import add_command, add_json_option, length_count, print_document
from pytest_npubench.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands
    from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile

TABLE_WIDTH = 160  # columns that a plan is printed in where its reader is no terminal


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
    from pytest_npubench.extensions.pairs.partition.profile_file import read_profile
    from pytest_npubench.extensions.pairs.partition.profile_fingerprint import machine_facts

    return read_profile(arguments.profile, facts=machine_facts(), any_fingerprint=arguments.any_fingerprint)
