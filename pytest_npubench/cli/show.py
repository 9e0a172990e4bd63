"""`npubench show`: a run as its end showed it, out of its journal; one case in full; or as JSON, CSV or Markdown."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.cli.arguments import add_command, add_journal
from pytest_npubench.errors import JournalError

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands

EXAMPLE = "npubench show .npubench/journal.jsonl --case profile/bucket128"
PIPE_WIDTH = 160


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "show", about, EXAMPLE)
    add_journal(parser)
    parser.add_argument("--session", metavar="ID", help="this session only (default: the latest run that has cases)")
    parser.add_argument(
        "--case",
        metavar="CASE",
        help="this case alone, in full: SUITE/KIND/ID, ID, or a short name as the table has it",
    )
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print JSON")
    forms.add_argument("--csv", action="store_true", help="print CSV, one line a metric")
    forms.add_argument("--markdown", action="store_true", help="print Markdown, as for a pull request")
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("-v", "--verbose", action="store_true", help="every case in full")
    loudness.add_argument("-q", "--quiet", action="store_true", help="the counts alone")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Shows a run or a case. Raises JournalError for a journal, session or case that cannot be shown."""
    form = next((name for name in ("json", "csv", "markdown") if getattr(arguments, name)), "table")
    verbosity = -1 if arguments.quiet else 1 if arguments.verbose or arguments.case else 0
    show(arguments.journal, session=arguments.session, case=arguments.case, form=form, verbosity=verbosity)
    return 0


def show(path: Path, *, session: str | None, case: str | None, form: str, verbosity: int) -> None:
    """Prints the cases of a run. Raises JournalError as `run`."""
    from pytest_npubench.cli.plain_streams import print_styled
    from pytest_npubench.reports.case_lines import case_csv, case_json
    from pytest_npubench.reports.markdown import run_markdown
    from pytest_npubench.reports.terminal import next_lines, render_run
    from pytest_npubench.store.journal_reader import read_journal
    from pytest_npubench.store.journal_runs import case_records, chosen_sessions
    from pytest_npubench.suites import shown

    records = case_records(chosen_sessions(read_journal(path), session))
    if case is not None:
        records = _of_case(records, case, path)
    if form == "json":
        print(case_json(records), end="")
    elif form == "csv":
        print(case_csv(records), end="")
    elif form == "markdown":
        print(run_markdown(records, shown, journal=path), end="")
    else:
        is_terminal = sys.stdout.isatty()
        width = shutil.get_terminal_size().columns if is_terminal else PIPE_WIDTH
        color = is_terminal and "NO_COLOR" not in os.environ
        print_styled(render_run(records, shown, journal=path, width=width, color=color, verbosity=verbosity))
        for line in next_lines(records, path, width=width, done=("show",)):
            print(line)


def _of_case(records: Sequence[Mapping[str, Any]], wanted: str, path: Path) -> list[Mapping[str, Any]]:
    from pytest_npubench.core.short_id import named, not_one

    keys = [record["case"] for record in records]
    matching = named(wanted, keys)
    if len(matching) == 1:
        return [record for record in records if record["case"] == matching[0]]
    raise JournalError(f"journal {path}: {not_one(wanted, matching, keys, nothing='the run has no case')}")
