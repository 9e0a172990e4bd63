"""`npubench trace`: the rounds of a run that a journal holds as a trace for Perfetto."""

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
from pytest_npubench.core.regular_file import replacing

if TYPE_CHECKING:
    from pytest_npubench.cli.arguments import Commands

EXAMPLE = "npubench trace .npubench/journal.jsonl -o trace.json"


def add_parser(commands: Commands, about: str) -> None:
    parser = add_command(commands, "trace", about, EXAMPLE)
    add_journal(parser)
    parser.add_argument("-o", "--output", metavar="TRACE.json", type=Path, required=True, help="the file to write")
    parser.add_argument("--session", metavar="ID", help="this session only (default: the latest run that has cases)")
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Writes the trace. Raises JournalError for a journal or session that cannot be used, OSError where the trace
    cannot be written."""
    from pytest_npubench.reports.overview import sessions_up_to
    from pytest_npubench.reports.trace import write_trace
    from pytest_npubench.store.journal_reader import read_journal
    from pytest_npubench.store.journal_runs import chosen_sessions
    from pytest_npubench.suites import shown
    from pytest_npubench.verdict.case_record import Cases

    journal = read_journal(arguments.journal)
    check_other_file(arguments.output, arguments.journal)
    sessions = chosen_sessions(journal, arguments.session)
    cases = Cases.read(record for session in sessions for record in session.records if record["record"] == "case")
    up_to = sessions_up_to(cases, journal)
    with replacing(arguments.output) as file:
        num_spans = write_trace(file, cases, journal, up_to, lambda suite: shown(suite).lanes)
    if arguments.json:
        counts = {"num_spans": num_spans, "num_cases": len(cases.records)}
        print_document("trace-written", output=arguments.output, **counts, sessions=[item.id for item in sessions])
        return 0
    say(f"wrote {arguments.output}: {num_spans:,} spans of {len(cases.records):,} cases")
    return 0
