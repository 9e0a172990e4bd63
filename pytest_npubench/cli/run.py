"""`npubench run`: pytest on the suites of the checkout around the current folder, or else on the shipped ones.

    npubench run buckets -m cpu     in a checkout:  python -m pytest --rootdir=. suites/buckets -m cpu
                                    elsewhere:      python -m pytest --pyargs npubench_suites.buckets -m cpu

pytest takes the place of this process, so its exit status is pytest's, and a signal meets pytest.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_npubench.cli.arguments import Commands, add_command
from pytest_npubench.errors import ConfigError, did_you_mean
from pytest_npubench.processes import guarded

PACKAGE = "npubench_suites"
EXAMPLE = "npubench run buckets scheduling -m cpu --npubench-profile nightly"
HELP_LIMIT_S = 120.0
NO_PREFIX = "\0"  # a sign that no argument can hold: all that begins with "-" is pytest's


@dataclass(frozen=True, slots=True, kw_only=True)
class Suites:
    """The folder of the suites and, where they are the shipped ones, their package."""

    folder: Path
    package: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(path.parent.name for path in self.folder.glob("*/__init__.py")))

    def targets(self, names: Sequence[str]) -> list[str]:
        """What pytest is told to run these suites, or all of them; in a checkout under its root."""
        if self.package is not None:
            return (
                ["--pyargs", *(".".join([self.package, name]) for name in names)]
                if names
                else ["--pyargs", self.package]
            )
        root = f"--rootdir={os.path.relpath(self.folder.parent)}"
        return [root, *(os.path.relpath(self.folder / name) for name in names or (".",))]


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "run", about, EXAMPLE, prefix_chars=NO_PREFIX, add_help=False)
    parser.usage = "npubench run [SUITE ...] [PYTEST ARGUMENT ...]"
    parser.add_argument(
        "arguments",
        metavar="ARGUMENT",
        nargs=argparse.REMAINDER,
        help="names of suites (default: all of them), then what pytest is given, such as -m MARKER, -k WORDS and the "
        "options below; first of all -h or --help: this text",
    )
    parser.set_defaults(run=lambda arguments: run(parser, arguments.arguments))


def run(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> int:
    """Runs pytest. Raises ConfigError where there are no suites, or none of a name."""
    if arguments and arguments[0] in ("-h", "--help"):
        parser.print_help()
        print(f"\n{option_groups()}")
        return 0
    return replace_process(pytest_command(arguments, find_suites(Path.cwd())))


def option_groups() -> str:
    """The plugin's options as `pytest --help` has them, in groups of which that for every day comes first."""
    command = [sys.executable, "-m", "pytest", "--help", "-p", "no:cacheprovider"]
    sections = re.split(r"\n(?=\S)", guarded.run(command, limit_s=HELP_LIMIT_S).stdout)
    return "\n".join(section for section in sections if section.startswith("npubench: "))


def pytest_command(arguments: Sequence[str], suites: Suites) -> list[str]:
    """The command of a pytest run: its first words name suites, the rest from the first option on is pytest's."""
    first = next((index for index, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    names = list(arguments[:first])
    for name in names:
        if name not in suites.names:
            hint = did_you_mean(name, suites.names)
            raise ConfigError(
                f"no suite {name!r}{hint} (known: {', '.join(suites.names)}; pytest's own follow an option)"
            )
    return [sys.executable, "-m", "pytest", *suites.targets(names), *arguments[first:]]


def find_suites(here: Path) -> Suites:
    """The suites of the checkout around `here`, else the shipped ones. Raises ConfigError without either."""
    for folder in (here, *here.parents):
        if (folder / "suites" / "__init__.py").is_file() and (folder / "pytest_npubench").is_dir():
            return Suites(folder=folder / "suites")
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"no suites: {here} is in no checkout, and {PACKAGE} is not installed: install pytest-npubench again"
        )
    return Suites(folder=Path(spec.origin).parent, package=PACKAGE)


def replace_process(command: Sequence[str]) -> int:
    """Replaces this process by the command, so it does not return."""
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command[0], list(command))
