"""`npubench preflight`: what a vendor's compiler says of each bucket before anybody rents a device.

    npubench preflight -m tpu --npubench-profile nightly

is `npubench run compiled graphs -m tpu --npubench-profile nightly`, without the cases that need a phone, and has
pytest's exit status.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_npubench.cli.arguments import Commands, add_command
from pytest_npubench.cli.run import NO_PREFIX, find_suites, pytest_command, replace_process
from pytest_npubench.errors import ConfigError

EXAMPLE = "npubench preflight -m tpu -k tpu-v5e --npubench-profile nightly"
COMPILED = ("compiled", "graphs", "--ignore-glob=*/graphs/test_phone.py")


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "preflight", about, EXAMPLE, prefix_chars=NO_PREFIX, add_help=False)
    parser.usage = "npubench preflight [PYTEST ARGUMENT ...]"
    parser.add_argument(
        "arguments",
        metavar="ARGUMENT",
        nargs=argparse.REMAINDER,
        help="what pytest is given, as -m tpu or -k tpu-v5e; -h or --help: this text",
    )
    parser.set_defaults(run=lambda arguments: run(parser, arguments.arguments))


def run(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    """Raises ConfigError where there are no suites, or for a word where an option of pytest's is wanted."""
    if {"-h", "--help"} & set(arguments):
        parser.print_help()
        return 0
    if arguments and not arguments[0].startswith("-"):
        raise ConfigError(f"preflight takes what pytest takes, as -m tpu or -k tpu-v5e, not {arguments[0]!r}")
    return replace_process(pytest_command((*COMPILED, *arguments), find_suites(Path.cwd())))
