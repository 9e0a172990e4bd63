"""The console script `npubench`: reads the command, runs it, turns our errors into one line and an exit status.

Exit status: 0 done, 1 an error of ours (one line on stderr), 2 a command line that cannot be understood, 130
interrupted, 141 the reader of our output went away.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any

import pytest_npubench
from pytest_npubench.cli.arguments import HelpText, Parser, print_error
from pytest_npubench.cli.command import commands
from pytest_npubench.cli.plain_streams import plain_streams
from pytest_npubench.errors import NpubenchError

EPILOG = """\
exit status:
  0    done
  1    an error, in one line on stderr; compare and ab: a regression; load:
       too few requests attain their SLO; search: no setting does; journal
       check and hardware --check: a fault was found; nightly: not green;
       selfcheck: a planted fault was missed
  2    a command line that cannot be understood; a simulation or load that
       cannot be run
  3    compare, ab, bisect: too much could not be decided
  4    bisect: the ends do not differ
  130  interrupted
  141  the reader of the output went away
  run has pytest's, and 10, 11 and 12 of its own: docs/ci.md

example: npubench run -m cpu"""
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
        words = sys.argv[1:] if argv is None else argv
        if "_ARGCOMPLETE" in os.environ:  # a shell asks what may stand here, on a stream of its own
            from argcomplete import autocomplete

            autocomplete(make_parser(_asked_for(os.environ.get("COMP_LINE", "").split())))
        arguments = make_parser(_asked_for(words)).parse_args(words)
        return _flushed(arguments.run(arguments) or 0)
    except NpubenchError as error:
        print_error(error)
    except BrokenPipeError:
        raise
    except OSError as error:  # a file that no command names better: its name too long, a disk that is full
        print_error(f"{error.filename or 'output'}: {error.strerror or error}")
    return 1


def _flushed(status: int) -> int:
    """Flushes stdout, so that a reader who went away is noticed here and not at exit."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    return status


class PrintCompletion(argparse.Action):
    """Prints the shell's completion script and exits, as --version does."""

    def __call__(self, parser: argparse.ArgumentParser, *values: Any) -> None:
        from argcomplete.shell_integration import shellcode

        print(shellcode(["npubench"], shell=values[1]))
        parser.exit()


def make_parser(called: Collection[str] | None = None) -> argparse.ArgumentParser:
    """A parser that knows the options of these commands, by default of all. Of the other commands it knows name and
    help line: their modules are not imported, which is most of the time that `npubench --help` would take."""
    parser = Parser(
        prog="npubench",
        description="LLM-accelerator benchmarks from the command line: runs, devices, profiles, predictions, reports.",
        epilog=EPILOG,
        formatter_class=HelpText,
    )
    parser.add_argument("--version", action="version", version=f"npubench {pytest_npubench.__version__}")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        help='print what completes commands and options: eval "$(npubench --print-completion bash)"',
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, command in commands().items():
        if called is None or name in called:
            command.add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=command.about)
    return parser


def _asked_for(words: Sequence[str]) -> Sequence[str]:
    """The command of a line: its first word that names a command, or nothing."""
    return [word for word in words if word in commands()][:1]
