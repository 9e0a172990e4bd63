"""The console script `npubench`: reads the command, runs it, turns our errors into one line and an exit status.

Exit status: 0 done, 1 an error of ours (one line on stderr), 2 a command line that cannot be understood, 130
interrupted, 141 the reader of our output went away.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import pytest_npubench
from pytest_npubench.cli import (
    ab,
    baseline,
    compare,
    hardware,
    history,
    journal,
    load,
    nightly,
    partition,
    predict,
    probe,
    profile,
    report,
    run,
    show,
    simulate,
    trace,
    workloads,
)
from pytest_npubench.cli.arguments import Parser, print_error
from pytest_npubench.cli.plain_streams import plain_streams
from pytest_npubench.errors import NpubenchError

COMMANDS = (
    run,
    probe,
    hardware,
    workloads,
    profile,
    predict,
    simulate,
    load,
    partition,
    show,
    report,
    trace,
    baseline,
    journal,
    history,
    compare,
    ab,
    nightly,
)
SHELLS = ("bash", "zsh", "fish")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. argparse exits by itself (SystemExit) on --help and usage errors."""
    with plain_streams():
        try:
            return _flushed(_run(argv))
        except BrokenPipeError:
            # what Python still holds must go somewhere, or it complains when it flushes at exit
            for stream in filter(None, (sys.stdout, sys.stderr)):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            return 141
        except KeyboardInterrupt:
            return 130


def _run(argv: Sequence[str] | None) -> int:
    try:
        parser = make_parser()
        if "_ARGCOMPLETE" in os.environ:  # a shell asks what may stand here, on a stream of its own
            from argcomplete import autocomplete

            autocomplete(parser)
        arguments = parser.parse_args(argv)
        status: int = arguments.run(arguments)
        return _flushed(status)
    except NpubenchError as error:
        print_error(error)
    except BrokenPipeError:
        raise
    except OSError as error:  # a file that no command names better: its name too long, a disk that is full
        print_error(f"{error.filename or 'output'}: {error.strerror or error}")
    return 1


def _flushed(status: int) -> int:
    """Here a reader who went away is noticed, and not at exit."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    return status


class PrintCompletion(argparse.Action):
    """Prints the shell's completion script and exits, as --version does."""

    def __call__(self, parser: argparse.ArgumentParser, *values: Any) -> None:
        from argcomplete.shell_integration import shellcode

        print(shellcode(["npubench"], shell=values[1]))
        parser.exit()


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="npubench",
        description="LLM-accelerator benchmarks from the command line: runs, devices, profiles, predictions, reports.",
        epilog="example: npubench run -m cpu",
    )
    parser.add_argument("--version", action="version", version=f"npubench {pytest_npubench.__version__}")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        help='print what completes commands and options: eval "$(npubench --print-completion bash)"',
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
