"""The console script `npubench`: reads the command, runs it, turns our errors into one line and an exit status.

Exit status: 0 done, 1 an error of ours (one line on stderr), 2 a command line that cannot be understood, 130
interrupted, 141 the reader of our output went away.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

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
    simulate,
    workloads,
)
from pytest_npubench.cli.arguments import print_error
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
    report,
    baseline,
    journal,
    history,
    compare,
    ab,
    nightly,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. argparse exits by itself (SystemExit) on --help and usage errors."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a sign of a device's name is no error
    arguments = make_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()  # so that a reader who went away is noticed here and not at exit
    except NpubenchError as error:
        print_error(error)
        return 1
    except BrokenPipeError:
        # what Python still holds must go somewhere, or it complains when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return 130
    return status


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="npubench",
        description="LLM-accelerator benchmarks from the command line: runs, devices, profiles, predictions, reports.",
        epilog="example: npubench run -m cpu",
    )
    parser.add_argument("--version", action="version", version=f"npubench {pytest_npubench.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
