"""The finished runs of a journal as sessions of a comparison.

A result that a resumed run took over from an earlier session counts once: with the session that measured it where that
one is finished, else with the run that took it over.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.comparison.observation import Key, Observation, of_record
from pytest_npubench.comparison.sides import Side, SideSession, fingerprint_facts, make_side
from pytest_npubench.errors import JournalError
from pytest_npubench.plain_text import counted
from pytest_npubench.store.journal_reader import Journal, Record, Session
from pytest_npubench.store.journal_runs import case_records, check_whole, chosen_sessions, run_of
from pytest_npubench.verdict import VerdictKind

Run = tuple[Session, ...]
Origin = tuple[str, str]  # device, fingerprint digest


def journal_sessions(label: str, journal: Journal, wanted: str | None = None) -> Side:
    """Returns the finished runs as a side; only the run of the session `wanted` where one is named.

    Raises JournalError where that session has no cases or its run is damaged, and for a record that cannot be read.
    """
    runs = [run for run in _runs(journal) if _is_whole(journal, run)]
    finished = [run for run in runs if all(session.end is not None for session in run)]
    measured = {_result(record) for run in finished for record in case_records(run) if not record.get("resumed")}
    chosen = finished
    notes = (
        [f"left out: {counted(len(runs) - len(finished), 'run')} without an end record"]
        if len(runs) > len(finished)
        else []
    )
    if wanted is not None:
        asked = run_of(journal, chosen_sessions(journal, wanted)[0])
        check_whole(journal, asked)
        chosen = [run for run in finished if run == asked]
        notes = [] if chosen else [f"session {wanted} has no end record: it still runs or was killed"]
    sessions = [session for run in chosen for session in _of_run(journal, run, measured)]
    return make_side(label, sessions, [*notes, *journal.remarks])


def _runs(journal: Journal) -> list[Run]:
    runs: dict[str, Run] = {}
    seen: set[str] = set()
    for session in journal.sessions:
        if session.id not in seen:
            runs[session.id] = run_of(journal, session)
            seen.update(member.id for member in runs[session.id])
    return list(runs.values())


def _is_whole(journal: Journal, run: Run) -> bool:
    """Whether no session of a run is damaged; the side's notes name the damage."""
    try:
        check_whole(journal, run)
    except JournalError:
        return False
    return True


def _result(record: Record) -> tuple[object, ...]:
    return record["case"], record["digest"], record["fingerprint"], record.get("device")


def _of_run(journal: Journal, run: Run, measured: set[tuple[object, ...]]) -> list[SideSession]:
    """One session for each device of the run."""
    by_origin: dict[Origin, dict[str, Record]] = {}
    for record in case_records(run):
        taken_over = record.get("resumed") and _result(record) in measured
        if record["fingerprint"] is not None and not taken_over:
            origin = (str(record.get("device", "")), record["fingerprint"])
            by_origin.setdefault(origin, {})[record["case"]] = record
    return [
        _session(journal, run, origin, list(records.values()), several=len(by_origin) > 1)
        for origin, records in by_origin.items()
    ]


def _session(journal: Journal, run: Run, origin: Origin, records: Sequence[Record], *, several: bool) -> SideSession:
    device, digest = origin
    valid = [record for record in records if record["verdict"]["kind"] != VerdictKind.INVALID.value]
    observations: dict[Key, Observation] = {found.key: found for record in valid for found in of_record(record)}
    bare = [] if several else [session.id for session in run]
    return SideSession(
        name=f"{run[0].id}@{device}" if several else run[0].id,
        ids=frozenset([*bare, *(f"{session.id}@{device}" for session in run)]),
        started_at=min(session.header["started_at"] for session in run),
        facts=fingerprint_facts(journal.fingerprint(digest), device),
        whole=True,
        observations=observations,
        invalid={
            record["case"]: str(record["verdict"].get("reason") or "invalid")
            for record in records
            if record["verdict"]["kind"] == VerdictKind.INVALID.value
        },
    )
