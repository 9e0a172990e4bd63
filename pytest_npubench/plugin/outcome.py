"""What happens with a run's results at its end: shown, accepted as baselines, uploaded, written as a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_npubench.core.regular_file import replace_text
from pytest_npubench.core.run_folders import short_path
from pytest_npubench.errors import RunNotAcceptedError, StoreError
from pytest_npubench.plain_text import counted, plain, plain_lines
from pytest_npubench.plugin.run_process import run_id
from pytest_npubench.plugin.settings import Settings
from pytest_npubench.store.journal import read_journal
from pytest_npubench.suites import shown
from pytest_npubench.verdict import VerdictKind
from pytest_npubench.verdict.case_record import Cases

if TYPE_CHECKING:
    from pytest_npubench.plugin.session import BenchSession

Record = Mapping[str, Any]
UPLOAD_TIMEOUT_S = 30.0
PIPE_WIDTH = 160
MOST_REASONS = 10
LACKING = "not installed: pip install pytest-npubench["
"""How each reason ends that names an extra."""
TEXTS = ("markdown", "csv", "openmetrics")
"""The files that a run writes beside its report, by their options."""
NOTHING_ACCEPTED = "nothing accepted: no case ran"


def publish(session: BenchSession, exit_status: int, records: Sequence[Record]) -> int:
    """Do what the run's settings ask for, and note what was done. Returns the exit status to set, 0 for none."""
    settings, failed = session.settings, False
    if settings.history and records:  # one that cannot be written is an error; what was measured is in the journal
        try:
            session.notes.append(upload_history(settings))
        except StoreError as error:
            failed = True
            session.notes.append(f"error: {error}")
    try:
        if settings.accept:
            done = accept_results(settings, exit_status, run_id(session.config)) if records else NOTHING_ACCEPTED
            session.notes.append(done)
        if settings.report and (records or _is_due(session, "report")):
            session.notes.append(write_report(settings, settings.report, records))
        if records:
            write_texts(settings, records)
        for name in TEXTS:
            if not records and getattr(settings, name) and _is_due(session, name):
                raise StoreError(f"no file {getattr(settings, name)}: no case ran")
    except (StoreError, OSError) as error:
        failed = True
        session.notes.append(f"error: {error}")
    if _lacks_judging(session, records) and not failed:
        return exit_status or ExitStatus.NOT_JUDGED
    return (exit_status or int(pytest.ExitCode.TESTS_FAILED)) if failed else 0


def _is_due(session: BenchSession, name: str) -> bool:
    """Whether a run without a case was asked for a file: by its command line, and not by what all runs share."""
    option = session.config.option
    is_asked = getattr(option, f"npubench_{name}") is not None
    return is_asked and not option.collectonly and not session.num_in_other_shards


def write_texts(settings: Settings, records: Sequence[Record]) -> None:
    """Write the run as Markdown, CSV and OpenMetrics where that was asked for, and add it to GitHub's step summary.
    Raises OSError."""
    if settings.markdown or settings.step_summary:
        from pytest_npubench.reports.markdown import run_markdown

        journal, baselines = short_path(settings.journal), short_path(settings.baselines)
        text = run_markdown(records, shown, journal=journal, baselines=baselines)
        if settings.markdown:
            _replace(settings.markdown, text)
        if settings.step_summary:
            with settings.step_summary.open("a", encoding="utf-8") as file:
                file.write(text)
    if settings.csv:
        from pytest_npubench.reports.case_lines import case_csv

        _replace(settings.csv, case_csv(records))
    if settings.openmetrics:
        from pytest_npubench.reports.ci_texts import openmetrics

        _replace(settings.openmetrics, openmetrics(records))


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, text)


def _lacks_judging(session: BenchSession, records: Sequence[Record]) -> bool:
    """Whether too few cases were judged, after accepting: no baseline judges a device's first nights."""
    wanted = session.settings.require_judged
    if wanted is None or (session.num_in_other_shards and not records):
        return False
    from pytest_npubench.comparison.judged_share import JudgedShare

    lack = JudgedShare.of(records).lack(wanted)
    if lack is not None:
        session.notes.append(f"error: --npubench-require-judged: {lack}")
    return lack is not None


def accept_results(settings: Settings, exit_status: int, run: str) -> str:
    """Add a run's green cases to the baselines; says in words what was done and which are left out, or why all are.

    `run` is the run's id in the journal. Raises StoreError where a baseline or the journal cannot be read or written,
    or a session of the run is damaged.
    """
    from pytest_npubench.store.accept_run import accept_run
    from pytest_npubench.store.journal_runs import sessions_of
    from pytest_npubench.store.waiting import Allowed, baselines_option

    journal, directory = read_journal(settings.journal), settings.baselines
    try:
        sessions = sessions_of(journal, run)
        allowed = Allowed(answers=settings.accept_answers)
        options = baselines_option(directory)
        done = accept_run(journal, sessions, directory, exit_status=exit_status, allowed=allowed, options=options)
        return str(done)
    except RunNotAcceptedError as error:
        return f"nothing accepted: {error}"


def upload_history(settings: Settings) -> str:
    """Upload the journal; says what was done. Raises StoreError, whose text says how to upload it later."""
    from pytest_npubench.store.history import upload_journal

    assert settings.history is not None
    journal = read_journal(settings.journal)
    done = upload_journal(settings.history, journal, timeout_s=UPLOAD_TIMEOUT_S)
    new, cases = counted(done.num_new_sessions, "session"), counted(done.num_cases, "case")
    counts = f"{new} new, {done.num_grown_sessions} grown, {cases}"
    return f"history: {counts}{f'; {journal.left_out}' if journal.damage else ''}"


def write_report(settings: Settings, path: Path, records: Sequence[Record]) -> str:
    """Write the HTML report. Raises OSError, and StoreError where no case ran or what writes it is not installed."""
    from pytest_npubench.store.baselines import Baselines

    if not records:
        raise StoreError(f"no HTML report {path}: no case ran")
    try:
        from pytest_npubench.reports.html import render_html
    except ImportError as error:
        raise StoreError(f"no HTML report {path}: {error.name} is {LACKING}report]") from None
    accepted = Baselines.load(settings.baselines, missing_ok=True)
    _replace(path, render_html(records, read_journal(settings.journal), shown, accepted))
    return f"HTML report: {path}"


def write_skips(reporter: Any, reports: Sequence[Any]) -> None:
    """Why nothing was measured: each reason with the number of cases that were skipped for it, the most frequent first.
    Not where `-rs` prints them."""
    if reporter.hasopt("skipped"):
        return
    reasons = Counter(map(_reason, reports))
    reporter.section("npubench", sep="=")
    for reason, number in reasons.most_common(MOST_REASONS):
        reporter.write_line(f"{number} case{'s' if number > 1 else ''} skipped: {reason}")
    if (others := len(reasons) - MOST_REASONS) > 0:
        reporter.write_line(f"{others} more reason{'s' if others > 1 else ''}: pytest -rs prints all")


def write_lacking(reporter: Any, reports: Sequence[Any]) -> None:
    """Which extras would let more cases run, with their number."""
    reasons = Counter(_reason(report) for report in reports)
    for reason, number in reasons.most_common():
        if LACKING in reason:
            reporter.write_line(f"{counted(number, 'case')} skipped: {reason}")


def _reason(report: Any) -> str:
    return plain(report.longrepr[2]).removeprefix("Skipped: ")


def write_summary(reporter: Any, session: BenchSession, records: Sequence[Record], skipped: Sequence[Any]) -> None:
    """One line a case, why, what suites say, the journal's place, notes, and last what to type next."""
    from pytest_npubench.comparison.judged_share import false_alarms
    from pytest_npubench.reports.terminal import next_lines, render_run

    settings, terminal = session.settings, session.config.get_terminal_writer()
    journal = short_path(settings.journal)
    width = terminal.fullwidth if reporter.isatty else PIPE_WIDTH
    reporter.section("npubench", sep="=")
    if records:
        reporter.write(
            render_run(
                records,
                shown,
                journal=journal,
                width=width,
                color=terminal.hasmarkup,
                verbosity=session.config.get_verbosity(),
            )
        )
        if alarms := false_alarms(records):
            reporter.write_line(alarms)
        reporter.write_line(plain(f"journal: {settings.journal}"))
    if skipped and not reporter.hasopt("skipped"):
        write_lacking(reporter, skipped)
        reporter.write_line(f"{len(skipped)} cases skipped: pytest -rs says why, -m selects what is here")
    for note in session.notes:
        reporter.write_line(plain_lines(note), red=note.startswith("error"))
    done = [name for name, asked in (("accept", settings.accept), ("report", settings.report)) if asked]
    for line in next_lines(records, journal, width=width, done=done, baselines=short_path(settings.baselines)):
        reporter.write_line(line)
    if settings.annotates:
        from pytest_npubench.reports.ci_texts import workflow_commands

        for line in workflow_commands(records):
            reporter.write_line(line)


class ExitStatus(IntEnum):
    """INVALID: cases could not be measured, or not well, and nothing else is wrong. DISTURBED: the same, and all of
    them because others used the machine. NOT_JUDGED: green, and too few cases were compared with a baseline."""

    INVALID = 10
    DISTURBED = 11
    NOT_JUDGED = 12


SAID: Mapping[int, str] = {
    ExitStatus.INVALID: "cases could not be measured, or not well, and nothing else is wrong: their reasons are above",
    ExitStatus.DISTURBED: "others used the machine while cases were measured, and nothing else is wrong: "
    "run again when it is quiet; what others may take is set by --npubench-other-load",
    ExitStatus.NOT_JUDGED: "too few cases were compared with a baseline, and nothing else is wrong: "
    "accept runs (npubench baseline accept)",
}
"""What each exit status of ours means and what to do about it."""


def exit_status(status: int, records: Sequence[Mapping[str, Any]], *, has_other_failures: bool) -> int:
    """What becomes of pytest's status. has_other_failures: a test failed that is no case, or a case not invalid."""
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED) or has_other_failures:
        return status
    invalid = [
        one.judgement for one in Cases.read(records).records if one.judgement.verdict.kind is VerdictKind.INVALID
    ]
    if not invalid:
        return status
    return ExitStatus.DISTURBED if all(one.is_disturbed for one in invalid) else ExitStatus.INVALID
