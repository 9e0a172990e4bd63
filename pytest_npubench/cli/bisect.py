"""`npubench bisect`: which release of a package, or which commit, made a case slower.

Exit status: 0 the change lies between two versions that follow each other, 1 an error, 3 it could not be told between
which, 4 the ends do not differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.ab import NUM_NAMED, add_pair_options, pair_count, say_progress, terms, two_ends
from pytest_npubench.cli.arguments import Commands, add_command, add_json_option, print_document, say
from pytest_npubench.cli.gate_arguments import add_judging_options
from pytest_npubench.plain_text import counted

if TYPE_CHECKING:
    from pytest_npubench.comparison.bisection import Bisection
    from pytest_npubench.comparison.versions import VersionPairs, Versions

EXAMPLE = "npubench bisect --package jaxlib 0.9.2..0.10.2 -- -m cpu -k b1-bucket512 suites/"
FOLDER = Path(".npubench") / "bisect"
MOST_PAIRS = 40
STATUSES = {"found": 0, "spread": 3, "undecided": 3, "alike": 4}


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "bisect", about, EXAMPLE)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--package", metavar=("NAME", "GOOD..BAD"), nargs=2, help="the releases of a package from one to another"
    )
    what.add_argument(
        "--commits", metavar="GOOD..BAD", help="the commits of the repository here, each measured in its own worktree"
    )
    add_pair_options(parser)
    parser.add_argument(
        "--most-pairs",
        metavar="N",
        type=pair_count,
        default=MOST_PAIRS,
        help="pass over a version that so many cannot decide (default: 40)",
    )
    parser.add_argument(
        "--keep",
        metavar="DIR",
        type=Path,
        help=f"work there, and keep environments, journals and logs (default: {FOLDER}, removed once it is decided)",
    )
    add_judging_options(parser)
    add_json_option(parser)
    parser.add_argument("arguments", metavar="PYTEST_ARGUMENT", nargs="+", help="after --: what pytest is to run")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints between which versions the change lies. Raises ConfigError where the ends or the package cannot be used,
    StoreError for a folder that cannot be."""
    from pytest_npubench.comparison.bisection import Search
    from pytest_npubench.comparison.versions import VersionPairs

    versions = _versions(arguments)
    pairs = VersionPairs(arguments.keep or FOLDER, "bisect", versions, arguments.arguments, terms(arguments))
    say_progress(f"{counted(len(versions.names), 'version')}; the same command goes on where it was ({pairs.path})")
    search = Search(
        versions.names,
        pairs.compare,
        num_pairs=arguments.pairs,
        most_pairs=arguments.most_pairs,
        say=say_progress,
    )
    bisection = search.run()
    _print(bisection, versions, pairs, as_json=arguments.json)
    if bisection.outcome == "undecided":
        more = f"--most-pairs {2 * arguments.most_pairs}"
        say_progress(f"kept in {pairs.path}: the same command with {more} goes on there")
    elif arguments.keep is None:
        pairs.remove()
    return STATUSES[bisection.outcome]


def _versions(arguments: argparse.Namespace) -> Versions:
    from pytest_npubench.comparison.versions import Commits, Releases

    if arguments.commits is not None:
        return Commits.between(*two_ends("--commits", arguments.commits))
    package, span = arguments.package
    return Releases.between(package, *two_ends(f"--package {package}", span))


def _print(bisection: Bisection, versions: Versions, pairs: VersionPairs, *, as_json: bool) -> None:
    """Prints what came of it, and what else differs between both environments, such as a distribution that had to
    follow."""
    from pytest_npubench.comparison.environments import environment_differences
    from pytest_npubench.reports.comparison import row_json

    differences = environment_differences(*map(pairs.environment, (bisection.before, bisection.after)))
    if as_json:
        rows = {"ends": bisection.ends, "step": bisection.step}
        shown = {name: row and row_json(row) for name, row in rows.items()}
        print_document("bisection", **{**asdict(bisection), **shown}, differences=differences)
        return
    for line in (*_lines(bisection, versions), *(f"   {text}" for text in differences[:NUM_NAMED])):
        say(line)


def _lines(bisection: Bisection, versions: Versions) -> Iterator[str]:
    from pytest_npubench.comparison.bisection import change_text
    from pytest_npubench.verdict import VerdictKind

    before, after = versions.title(bisection.before), versions.title(bisection.after)
    ends, step = bisection.ends, bisection.step
    if ends is None:
        yield f"{after} does not differ from {before}"
        return
    if ends.kind is VerdictKind.INCONCLUSIVE:
        yield f"not decided whether {after} differs from {before}: {ends.name} {change_text(ends)}"
        return
    change = f"{ends.name} {change_text(step or ends)}"
    if bisection.outcome == "spread":
        yield f"in no single step; between {before} and {after}: {change}"
    else:
        more = "" if bisection.outcome == "found" else "; not told more closely"
        yield f"between {before} and {after}: {change}{more}"
    yield f"   from first to last {change_text(ends)}"
    for name, reason in bisection.passed_over.items():
        yield f"   passed over: {name}: {reason}"
    for name in bisection.others[:NUM_NAMED]:
        yield f"   first and last differ in {name} too"
