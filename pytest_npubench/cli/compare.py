"""`npubench compare`: did an upgrade make anything slower? Two sides, or one split by a part of its stack.

Exit status: 0 no regression, 1 a case, the suite or the canaries regressed (or an error), 3 too much undecided.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import Commands, add_command, check_other_file
from pytest_npubench.cli.gate_arguments import add_gate_options, print_comparison

if TYPE_CHECKING:
    from pytest_npubench.comparison.sides import Side

EXAMPLE = "npubench compare .npubench/journal.jsonl --by driver"
SIDES = "a journal (PATH, or PATH@SESSION), a folder of baselines, or history:URL?driver=570.86&since=2026-11-01"


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "compare", about, EXAMPLE)
    parser.add_argument("old", metavar="A", help=f"before: {SIDES}")
    parser.add_argument("new", metavar="B", nargs="?", help="after, likewise (default: A, which needs --by)")
    parser.add_argument(
        "--by",
        metavar="PART",
        action="append",
        default=[],
        help="what was upgraded (driver, runtime, compiler, git_revision, device, ...): one side is split by it, and "
        "the rest of the stack must be equal; may be repeated",
    )
    parser.add_argument("--from", dest="from_value", metavar="VALUE", help="of that part before (default: the oldest)")
    parser.add_argument("--to", dest="to_value", metavar="VALUE", help="of that part after (default: the newest)")
    add_gate_options(parser)
    parser.set_defaults(run=lambda arguments: run(parser, arguments))


def run(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    """Prints the comparison and returns its exit status. Raises StoreError for a side that cannot be read or would be
    overwritten, ConfigError for sides that cannot be compared."""
    is_one_side = arguments.new is None or _same(arguments.old, arguments.new)
    if is_one_side and not arguments.by:
        parser.error("one side is compared with itself: name another as B, or what to split it by with --by PART")
    if (arguments.from_value or arguments.to_value) and not (is_one_side and len(arguments.by) == 1):
        parser.error("--from and --to go with one side and one --by PART")
    from pytest_npubench.comparison.side_sources import side_path
    from pytest_npubench.comparison.upgrade import compare_sides

    check_other_file(arguments.output, *(side_path(side) for side in (arguments.old, arguments.new) if side))
    old, new = _sides(arguments, is_one_side=is_one_side)
    comparison = compare_sides(old, new, margin=arguments.margin, q=arguments.q, metrics=arguments.metric)
    return print_comparison(comparison, arguments)


def _sides(arguments: argparse.Namespace, *, is_one_side: bool) -> tuple[Side, Side]:
    from pytest_npubench.comparison.side_sources import load_side
    from pytest_npubench.comparison.sides import apart
    from pytest_npubench.comparison.stack_changes import alike_but_for, split

    first = load_side(arguments.old)
    if is_one_side:
        old, new = split(first, arguments.by, arguments.from_value, arguments.to_value)
    else:
        old, new = apart(first, load_side(arguments.new))
    if arguments.by and old.sessions and new.sessions:
        old, new = alike_but_for(old, new, arguments.by)
    return old, new


def _same(old: str, new: str) -> bool:
    return old == new or (Path(old).exists() and Path(new).exists() and Path(old).samefile(new))
