"""The step that puts the journal into the history. A night whose history could not be written is not green.

The whole journal is uploaded, so nights that a server was away are made up for; the history knows which it has. Where
other runners judged other parts of the suite this night, what is in doubt among all of it is said.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from pytest_npubench.comparison.night_shards import NIGHT, in_doubt_together
from pytest_npubench.errors import StoreError
from pytest_npubench.nightly.night import Night, Step
from pytest_npubench.plain_text import counted
from pytest_npubench.store.history import history_series, upload_journal
from pytest_npubench.store.journal_reader import read_journal


def upload(night: Night, history: str | None) -> Step:
    """`history` is its address, None for none. Raises NightlyError where the state cannot be read, OSError."""
    night.steps()
    if history is None or not night.state.journal.exists():
        why = "there is no journal" if history is not None else "no history is kept"
        return night.record(Step(name="upload", outcome="done", lines=(f"nothing uploaded: {why}",)))
    state = night.state.read()
    try:
        journal = read_journal(night.state.journal)
        done = upload_journal(history, journal)
        doubts = in_doubt_together(history_series(history, since=datetime.now(timezone.utc) - 2 * NIGHT))
    except StoreError as error:
        night.state.write(replace(state, is_uploaded=False))
        return night.record(Step(name="upload", outcome="failed", lines=(f"not in the history: {error}",)))
    night.state.write(replace(state, is_uploaded=True))
    new, cases = counted(done.num_new_sessions, "session"), counted(done.num_cases, "case")
    counts = f"{new} new, {done.num_grown_sessions} grown, {cases}"
    damage = (journal.left_out,) if journal.damage else ()
    lines = (f"history: {counts}", *damage, *map(str, doubts))
    return night.record(Step(name="upload", outcome="warning" if damage else "done", lines=lines))
