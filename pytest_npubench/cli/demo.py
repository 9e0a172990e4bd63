"""`npubench demo`: a slowdown that is planted on this machine, and what a run says of it.

A folder gets a test of a small loop. It is accepted three times, then the loop is made half as long again and the test
runs once more, as pytest shows it. Nothing is simulated: what is printed was measured on this processor.

Exit status: 0 the slowdown was reported, 1 it was not, or nothing could be measured.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from itertools import takewhile
from pathlib import Path

from pytest_npubench.cli.arguments import Commands, add_command
from pytest_npubench.cli.selfcheck import why_not
from pytest_npubench.core.clock import monotonic
from pytest_npubench.errors import StoreError
from pytest_npubench.processes import guarded

EXAMPLE = "npubench demo -o first-look"
NUM_SESSIONS = 3
NUM_NUMBERS, NUM_SLOWER = 10_000, 15_000
TEST = """import pytest


def total_of_squares():
    return sum(number * number for number in range({count:_}))


@pytest.mark.cpu
@pytest.mark.npubench(rounds=300)
def test_total(npubench):
    npubench(total_of_squares)
"""
REPORT = "report.html"
OPTIONS = ("--npubench-other-load=1", "--npubench-lock-timeout=60", "-p", "no:cacheprovider", "--no-header", "-rs")
LIMIT_S = 600.0


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "demo", about, EXAMPLE)
    parser.add_argument(
        "-o", "--output", metavar="DIR", type=Path, help="keep the test, its baseline and an HTML report there"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Shows both runs. Raises StoreError for a folder that is not empty, and where nothing could be accepted what
    selfcheck.why_not returns."""
    if arguments.output is None:
        with tempfile.TemporaryDirectory(prefix="npubench-demo-") as name:
            return _show(Path(name))
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
        is_empty = not any(arguments.output.iterdir())
    except OSError as error:
        raise StoreError(f"{arguments.output}: {error.strerror}") from error
    if not is_empty:
        raise StoreError(f"{arguments.output} is not empty: want a new folder")
    status = _show(arguments.output.resolve())
    names = sorted(path.name for path in arguments.output.iterdir() if not path.name.startswith((".", "__")))
    print(f"\nin {arguments.output}: {', '.join(names)}")
    return status


def _show(folder: Path) -> int:
    started_s = monotonic()
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    print(
        f"1. A test sums {NUM_NUMBERS:,} squares. It is measured and accepted in {NUM_SESSIONS} processes.", flush=True
    )
    done = _pytest(folder, NUM_NUMBERS, f"--npubench-accept={NUM_SESSIONS}")
    if not (folder / "baselines").exists():
        raise why_not(done.stdout + done.stderr, "cpu")
    print(f"2. It sums {NUM_SLOWER:,} squares now, half as much work again. The next run says:\n", flush=True)
    done = _pytest(folder, NUM_SLOWER, f"--npubench-report={REPORT}")
    lines = done.stdout.splitlines()
    shown = next((number for number, line in enumerate(lines) if line.strip("= ") == "npubench"), 0)
    print("\n".join(takewhile(lambda line: not line.startswith("journal:"), lines[shown:])))
    is_seen = done.returncode == 1 and "regressed" in done.stdout
    said = "was reported" if is_seen else "was NOT reported: too much else went on, as the reason above says"
    print(f"The planted slowdown of 50 % {said}, after {monotonic() - started_s:.0f} s in all.")
    return 0 if is_seen else 1


def _pytest(folder: Path, count: int, option: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_demo.py").write_text(TEST.format(count=count), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "test_demo.py", *OPTIONS, option]
    return guarded.run(command, limit_s=LIMIT_S, folder=folder)
