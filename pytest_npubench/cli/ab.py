"""`npubench ab`: two Python environments (two compilers or runtimes) measured in turn in fresh processes.

Exit status: 0 no regression, 1 a case, the suite or the canaries regressed (or an error), 3 too much undecided.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import LONGEST_S, add_command, number, whole_number
from pytest_npubench.cli.gate_arguments import add_gate_options, print_comparison

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands
    from pytest_npubench.comparison.environments import Environment
    from pytest_npubench.comparison.outcome import Comparison

EXAMPLE = "npubench ab --env-a .venv-old --env-b .venv-new -- -m cpu suites/"
NUM_PAIRS = 5
pair_count = whole_number(1000)
NUM_NAMED = 20


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "ab", about, EXAMPLE)
    for side in ("a", "b"):
        text = f"environment {side.upper()}: a python, or the folder of a virtual environment"
        parser.add_argument(f"--env-{side}", metavar="PY", required=True, help=text)
    parser.add_argument(
        "--pairs", metavar="N", type=pair_count, default=NUM_PAIRS, help="processes of each (default: 5)"
    )
    parser.add_argument(
        "--cooldown", metavar="SECONDS", type=_wait, default=0.0, help="wait so long between processes (default: 0)"
    )
    parser.add_argument(
        "--keep", metavar="DIR", type=Path, help="keep journals and logs there; what it holds is not run again"
    )
    add_gate_options(parser)
    parser.add_argument("arguments", metavar="ARGUMENT", nargs="+", help="after --: what pytest is to run")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the comparison and returns its exit status. Raises EnvironmentUnusableError before anything runs,
    ConfigError where nothing can be compared, StoreError for a folder or journal that cannot be used."""
    from pytest_npubench.comparison.environments import environment_differences, find_environment

    environments = {side: find_environment(f"--env-{side.lower()}", _named(arguments, side)) for side in ("A", "B")}
    for side, environment in environments.items():
        _say(f"{side}  {environment.python}, pytest-npubench {environment.plugin_version}")
    differences = environment_differences(environments["A"], environments["B"])
    for line in differences[:NUM_NAMED] or ("nothing differs: this is an A/A run",):
        _say(f"   {line}")
    if len(differences) > NUM_NAMED:
        _say(f"   and {len(differences) - NUM_NAMED} distributions more")
    return print_comparison(_compared(arguments, environments), arguments)


def _compared(arguments: argparse.Namespace, environments: dict[str, Environment]) -> Comparison:
    from pytest_npubench.comparison.ab_folder import AbFolder
    from pytest_npubench.comparison.ab_run import run_pairs
    from pytest_npubench.comparison.journal_sessions import journal_sessions
    from pytest_npubench.comparison.paired_sides import compare_pairs
    from pytest_npubench.store.journal_reader import read_journal

    path = arguments.keep or Path(tempfile.mkdtemp(prefix="npubench-ab-"))
    folder = AbFolder(path, environments, arguments.arguments)
    try:
        done = run_pairs(
            environments,
            arguments.arguments,
            folder,
            num_pairs=arguments.pairs,
            cooldown_s=arguments.cooldown,
            say=_say,
        )
    except KeyboardInterrupt:
        _say(f"interrupted; the journals are in {path}: go on with --keep {path}")
        raise
    pairs = [
        tuple(journal_sessions(str(journal), read_journal(journal)) for journal in journals) for journals in done.pairs
    ]
    comparison = compare_pairs(
        [(old, new) for old, new in pairs],
        labels=(str(environments["A"].python), str(environments["B"].python)),
        margin=arguments.margin,
        q=arguments.q,
        metrics=arguments.metric,
        notes=done.notes,
    )
    if arguments.keep is None:
        shutil.rmtree(path, ignore_errors=True)
    return comparison


def _named(arguments: argparse.Namespace, side: str) -> str:
    named: str = getattr(arguments, f"env_{side.lower()}")
    return named


def _say(text: str) -> None:
    """Prints to stderr, since the findings go to stdout."""
    print(text, file=sys.stderr, flush=True)


def _wait(text: str) -> float:
    return number(text, f"seconds, 0 to {LONGEST_S}", lambda value: 0 <= value <= LONGEST_S)
