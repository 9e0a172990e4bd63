"""`npubench show`: a run as its end showed it, out of its journal; one case in full; or in another form: JSON, CSV,
Markdown, the HTML report, or a trace for Perfetto."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.cli.arguments import Commands, add_command, add_journal, check_other_file, say
from pytest_npubench.core.regular_file import replace_text, replacing
from pytest_npubench.core.run_folders import baselines_of, other_baselines_of
from pytest_npubench.errors import JournalError
from pytest_npubench.plain_text import counted
from pytest_npubench.reports import report_extra

if TYPE_CHECKING:
    from pytest_npubench.store.journal_reader import Journal

Records = Sequence[Mapping[str, Any]]
EXAMPLE = "npubench show .npubench/journal.jsonl --html -o report.html"
FORMS = {
    "json": "as JSON",
    "csv": "as CSV, one line a metric",
    "markdown": "as Markdown, as for a pull request",
    "html": "as a page with charts, which -o names",
    "trace": "its rounds as a trace for https://ui.perfetto.dev, which -o names",
}
WRITTEN = ("html", "trace")
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
    for name, text in FORMS.items():
        forms.add_argument(f"--{name}", dest="form", action="store_const", const=name, default="table", help=text)
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, help="write it to this file")
    parser.add_argument(
        "--baselines",
        metavar="DIR",
        type=Path,
        help="with --html: accepted sessions to show beside failing cases (default: those of the journal's folder)",
    )
    loudness = parser.add_mutually_exclusive_group()
    loudness.add_argument("-v", "--verbose", action="store_true", help="every case in full")
    loudness.add_argument("-q", "--quiet", action="store_true", help="the counts alone")

    def checked(arguments: argparse.Namespace) -> None:
        if arguments.form in WRITTEN and arguments.output is None:
            parser.error(f"--{arguments.form} wants -o FILE")
        run(arguments)

    parser.set_defaults(run=checked)


def run(arguments: argparse.Namespace) -> None:
    """Shows a run or a case. Raises JournalError for a journal, session or case that cannot be shown, BaselineError for
    such baselines, ConfigError without the report extra, OSError where the file cannot be written."""
    from pytest_npubench.store.journal_reader import read_journal
    from pytest_npubench.store.journal_runs import chosen_sessions, counted_cases

    check_other_file(arguments.output, arguments.journal)
    journal = read_journal(arguments.journal)
    sessions = chosen_sessions(journal, arguments.session)
    records: Records = counted_cases(sessions)
    if arguments.case is not None:
        records = _of_case(records, arguments.case, arguments.journal)
    if arguments.form == "trace":
        holds = f"{_write_trace(arguments.output, records, journal):,} spans of {counted(len(records), 'case')}"
    elif arguments.output is None:
        _print(arguments, records, journal)
        return
    else:
        replace_text(arguments.output, _text(arguments, records, journal, PIPE_WIDTH, color=False))
        holds = counted(len(records), "case")
    say(f"wrote {arguments.output}: {holds} of session {', '.join(session.id for session in sessions)}")


def _print(arguments: argparse.Namespace, records: Records, journal: Journal) -> None:
    from pytest_npubench.cli.plain_streams import print_styled
    from pytest_npubench.reports.terminal import next_lines

    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else PIPE_WIDTH
    text = _text(arguments, records, journal, width, color=is_terminal and "NO_COLOR" not in os.environ)
    if arguments.form != "table":
        print(text, end="")
        return
    print_styled(text)
    baselines = other_baselines_of(arguments.journal)
    for line in next_lines(records, arguments.journal, width=width, done=("show",), baselines=baselines):
        print(line)


def _text(arguments: argparse.Namespace, records: Records, journal: Journal, width: int, *, color: bool) -> str:
    """The records in the form that was asked for."""
    from pytest_npubench.reports.case_lines import case_csv, case_json
    from pytest_npubench.reports.markdown import run_markdown
    from pytest_npubench.reports.terminal import render_run
    from pytest_npubench.suites import shown

    match arguments.form:
        case "json":
            return case_json(records)
        case "csv":
            return case_csv(records)
        case "markdown":
            return run_markdown(
                records, shown, journal=arguments.journal, baselines=other_baselines_of(arguments.journal)
            )
        case "html":
            return _page(arguments, records, journal)
    verbosity = -1 if arguments.quiet else 1 if arguments.verbose or arguments.case else 0
    return render_run(records, shown, journal=arguments.journal, width=width, color=color, verbosity=verbosity)


def _page(arguments: argparse.Namespace, records: Records, journal: Journal) -> str:
    from pytest_npubench.store.baselines import Baselines
    from pytest_npubench.suites import shown

    with report_extra():
        from pytest_npubench.reports.html import render_html
    folder = arguments.baselines or baselines_of(arguments.journal)
    accepted = Baselines.load(folder, missing_ok=arguments.baselines is None) if folder is not None else None
    return render_html(records, journal, shown, accepted)


def _write_trace(path: Path, records: Records, journal: Journal) -> int:
    """Returns the number of spans."""
    from pytest_npubench.reports.overview import sessions_up_to
    from pytest_npubench.reports.trace import write_trace
    from pytest_npubench.suites import shown
    from pytest_npubench.verdict.case_record import Cases

    cases = Cases.read(records)
    with replacing(path) as file:
        return write_trace(file, cases, journal, sessions_up_to(cases, journal), lambda suite: shown(suite).lanes)


def _of_case(records: Records, wanted: str, path: Path) -> Records:
    from pytest_npubench.core.short_id import named, not_one

    keys = [record["case"] for record in records]
    matching = named(wanted, keys)
    if len(matching) == 1:
        return [record for record in records if record["case"] == matching[0]]
    raise JournalError(f"journal {path}: {not_one(wanted, matching, keys, nothing='the run has no case')}")
