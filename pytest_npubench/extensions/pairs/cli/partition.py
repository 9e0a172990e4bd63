"""`npubench partition`: profile a pair of compute units, plan a model's operators by it, explain one decision."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import add_command
from pytest_npubench.extensions.pairs.cli import partition_plan, partition_profile

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(
        commands,
        "partition",
        about,
        "npubench partition plan --profile pair.json --model llama-8b-div4",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    partition_profile.add_parser(actions)
    for add in (partition_plan.add_plan_parser, partition_plan.add_explain_parser):
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
