"""`npubench report`: the HTML report of a run that a journal holds."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_npubench.cli.arguments import (
    add_command,
    add_journal,
    add_json_option,
    check_other_file,
    print_document,
    say,
)
from pytest_npubench.cli.gate_arguments import MARGIN, Q
from pytest_npubench.core.regular_file import replace_text
from pytest_npubench.plain_text import counted
from pytest_npubench.reports import report_extra

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands

EXAMPLE = "npubench report .npubench/journal.jsonl -o report.html"


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "report", about, EXAMPLE)
    add_journal(parser)
    parser.add_argument("other", metavar="B", type=Path, nargs="?", help="a second journal: both side by side")
    parser.add_argument("-o", "--output", metavar="REPORT.html", type=Path, required=True, help="the file to write")
    parser.add_argument("--session", metavar="ID", help="this session only (default: the latest run that has cases)")
    parser.add_argument(
        "--baselines", metavar="DIR", type=Path, help="accepted sessions to show beside failing cases (default: none)"
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the page. Raises JournalError for a journal or session that cannot be used, BaselineError for such
    baselines, ConfigError without the report extra, OSError where the page cannot be written."""
    from pytest_npubench.store.baselines import Baselines
    from pytest_npubench.store.journal_reader import read_journal
    from pytest_npubench.store.journal_runs import case_records, chosen_sessions
    from pytest_npubench.suites import shown

    with report_extra():
        from pytest_npubench.reports.html import render_html
    check_other_file(arguments.output, *filter(None, (arguments.journal, arguments.other)))
    if arguments.other is not None:
        return _side_by_side(arguments)
    journal = read_journal(arguments.journal)
    sessions = chosen_sessions(journal, arguments.session)
    accepted = Baselines.load(arguments.baselines) if arguments.baselines is not None else None
    records = case_records(sessions)
    replace_text(arguments.output, render_html(records, journal, shown, accepted))
    if arguments.json:
        names = [item.id for item in sessions]
        print_document("report-written", output=arguments.output, num_cases=len(records), sessions=names)
        return 0
    cases = counted(len(records), "case")
    say(f"wrote {arguments.output}: {cases} of session {', '.join(item.id for item in sessions)}")
    return 0


def _side_by_side(arguments: argparse.Namespace) -> int:
    """Writes the findings of `npubench compare` as a page; here a regression is no failure."""
    from pytest_npubench.comparison.side_sources import load_side
    from pytest_npubench.comparison.sides import apart
    from pytest_npubench.comparison.upgrade import compare_sides
    from pytest_npubench.reports.comparison import comparison_html

    old, new = apart(load_side(str(arguments.journal)), load_side(str(arguments.other)))
    comparison = compare_sides(old, new, margin=MARGIN, q=Q, metrics=())
    replace_text(arguments.output, comparison_html(comparison))
    if arguments.json:
        sides = {"old": comparison.old.label, "new": comparison.new.label}
        print_document("comparison-written", output=arguments.output, **sides, num_compared=comparison.num_compared)
        return 0
    metrics = counted(comparison.num_compared, "metric")
    say(f"wrote {arguments.output}: {metrics} of {comparison.old.label} beside {comparison.new.label}")
    return 0
