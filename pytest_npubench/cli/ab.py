"""`npubench ab`: two Python environments (two compilers or runtimes) or two commits, measured in turn.

Exit status: 0 no regression, 1 a case, the suite or the canaries regressed (or an error), 3 too much undecided.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import LONGEST_S, Commands, add_command, number, whole_number
from pytest_npubench.cli.gate_arguments import add_gate_options, print_comparison
from pytest_npubench.errors import ConfigError

if TYPE_CHECKING:
    from pytest_npubench.comparison.ab_run import Terms
    from pytest_npubench.comparison.outcome import Comparison

EXAMPLE = "npubench ab --env-a .venv-old --env-b .venv-new -- -m cpu suites/"
NUM_PAIRS = 5
pair_count = whole_number(1000)
NUM_NAMED = 20


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "ab", about, EXAMPLE)
    for side in ("a", "b"):
        text = f"environment {side.upper()}: a python, or the folder of a virtual environment"
        parser.add_argument(f"--env-{side}", metavar="PY", help=text)
    parser.add_argument("--commits", metavar="A..B", help="two commits instead, each measured in its own worktree")
    add_pair_options(parser)
    parser.add_argument(
        "--keep", metavar="DIR", type=Path, help="keep journals and logs there; what it holds is not run again"
    )
    add_gate_options(parser)
    parser.add_argument("arguments", metavar="PYTEST_ARGUMENT", nargs="+", help="after --: what pytest is to run")

    def checked(arguments: argparse.Namespace) -> int:
        if [bool(arguments.env_a), bool(arguments.env_b)] != 2 * [arguments.commits is None]:
            parser.error("want both of --env-a and --env-b, or --commits")
        return run(arguments)

    parser.set_defaults(run=checked)


def add_pair_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--pairs", metavar="N", type=pair_count, default=NUM_PAIRS, help="processes of each (default: 5)"
    )
    parser.add_argument(
        "--cooldown", metavar="SECONDS", type=_wait, default=0.0, help="wait so long between processes (default: 0)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the comparison and returns its exit status. Raises EnvironmentUnusableError before anything runs,
    ConfigError where nothing can be compared, StoreError for a folder or journal that cannot be used."""
    path = arguments.keep or Path(tempfile.mkdtemp(prefix="npubench-ab-"))
    try:
        compared = _environments_compared if arguments.commits is None else _commits_compared
        comparison = compared(arguments, path)
    except KeyboardInterrupt:
        say_progress(f"interrupted; the journals are in {path}: go on with --keep {path}")
        raise
    if arguments.keep is None:
        shutil.rmtree(path, ignore_errors=True)
    return print_comparison(comparison, arguments)


def _environments_compared(arguments: argparse.Namespace, path: Path) -> Comparison:
    from pytest_npubench.comparison.ab_folder import AbFolder
    from pytest_npubench.comparison.ab_run import compare_in_turn
    from pytest_npubench.comparison.environments import environment_differences, find_environment

    named = {"A": arguments.env_a, "B": arguments.env_b}
    environments = {side: find_environment(f"--env-{side.lower()}", text) for side, text in named.items()}
    for side, environment in environments.items():
        say_progress(f"{side}  {environment.python}, pytest-npubench {environment.plugin_version}")
    differences = environment_differences(environments["A"], environments["B"])
    for line in differences[:NUM_NAMED] or ("nothing differs: this is an A/A run",):
        say_progress(f"   {line}")
    if len(differences) > NUM_NAMED:
        say_progress(f"   and {len(differences) - NUM_NAMED} distributions more")
    folder = AbFolder(path, environments, arguments.arguments)
    return compare_in_turn(environments, arguments.arguments, folder, terms(arguments), num_pairs=arguments.pairs)


def _commits_compared(arguments: argparse.Namespace, path: Path) -> Comparison:
    from pytest_npubench.comparison.versions import Commits, VersionPairs

    commits = Commits.pair(*two_ends("--commits", arguments.commits))
    pairs = VersionPairs(path, "ab-commits", commits, arguments.arguments, terms(arguments))
    comparison = pairs.compare(commits.names[0], commits.names[1], arguments.pairs)
    if arguments.keep is None:
        pairs.remove()
    return comparison


def terms(arguments: argparse.Namespace) -> Terms:
    from pytest_npubench.comparison.ab_run import Terms

    return Terms(
        cooldown_s=arguments.cooldown,
        margin=arguments.margin,
        q=arguments.q,
        metrics=tuple(arguments.metric),
        say=say_progress,
    )


def two_ends(option: str, span: str) -> tuple[str, str]:
    """Splits "0.9.2..0.10.2". Raises ConfigError where the text is none such."""
    first, dots, last = span.partition("..")
    if not (first and dots and last) or last.startswith("."):
        raise ConfigError(f"{option} {span}: want two ends, such as 0.9.2..0.10.2")
    return first, last


def say_progress(text: str) -> None:
    """Prints to stderr, since the findings go to stdout."""
    print(text, file=sys.stderr, flush=True)


def _wait(text: str) -> float:
    return number(text, f"seconds, 0 to {LONGEST_S}", lambda value: 0 <= value <= LONGEST_S)
