"""The table at the end of a run, and below it what a person should know."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_npubench.plain_text import plain, plain_lines

if TYPE_CHECKING:
    from pytest_npubench.plugin.session import BenchSession

PIPE_WIDTH = 160


def write_summary(reporter: Any, session: BenchSession, records: Sequence[Mapping[str, Any]]) -> None:
    """One row a case, then the prediction error over all of them, notes and the journal's place."""
    if not records and not session.notes:
        return
    from pytest_npubench.reports.terminal import render_table, summary_lines
    from pytest_npubench.suites import shown

    reporter.section("npubench", sep="=")
    if records:
        terminal = session.config.get_terminal_writer()
        width = terminal.fullwidth if reporter.isatty else PIPE_WIDTH
        reporter.write(render_table(records, width=width, color=terminal.hasmarkup))
        for line in summary_lines(records, shown):
            reporter.write_line(line)
        reporter.write_line(plain(f"journal: {session.settings.journal}"))
    for note in session.notes:
        reporter.write_line(plain_lines(note), red=note.startswith("error"))
