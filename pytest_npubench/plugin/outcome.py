"""What happens with a run's results at its end: accepted as a baseline session, uploaded, written as a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_npubench.errors import RunNotAcceptedError
from pytest_npubench.plugin.settings import Settings
from pytest_npubench.store.accept_run import accept_run
from pytest_npubench.store.journal import read_journal
from pytest_npubench.store.journal_runs import sessions_of
from pytest_npubench.suites import shown

Record = Mapping[str, Any]
UPLOAD_TIMEOUT_S = 30.0


def accept_results(settings: Settings, exit_status: int, run: str) -> str:
    """Add a run's green cases to the baselines; says in words what was done and which are left out, or why all are.

    `run` is the run's id in the journal. Raises StoreError where a baseline or the journal cannot be read or written,
    or a session of the run is damaged.
    """
    journal = read_journal(settings.journal)
    try:
        sessions = sessions_of(journal, run)
        return str(accept_run(journal, sessions, settings.baselines, exit_status=exit_status))
    except RunNotAcceptedError as error:
        return f"nothing accepted: {error}"


def upload_history(settings: Settings) -> str:
    """Upload the journal; says what was done. Raises StoreError, whose text says how to upload it later."""
    from pytest_npubench.store.history import upload_journal

    assert settings.history is not None
    journal = read_journal(settings.journal)
    done = upload_journal(settings.history, journal, timeout_s=UPLOAD_TIMEOUT_S)
    counts = f"{done.num_new_sessions} sessions new, {done.num_grown_sessions} grown, {done.num_cases} cases"
    return f"history: {counts}{f'; {journal.left_out}' if journal.damage else ''}"


def write_report(path: Path, records: Sequence[Record], journal: Path) -> str:
    """Write the HTML report. Raises OSError; without the report extra it says what to install."""
    try:
        from pytest_npubench.reports.html import render_html
    except ImportError as error:
        return f"no HTML report: {error.name} is not installed: pip install pytest-npubench[report]"
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.tmp")  # a kill leaves the old page or the new one
    beside.write_text(render_html(records, read_journal(journal), shown), encoding="utf-8")
    beside.replace(path)
    return f"HTML report: {path}"
