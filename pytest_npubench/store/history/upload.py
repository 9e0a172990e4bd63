"""Putting the sessions of a journal into the history, each in one transaction, any number of times.

A session's journal lines only grow, so of two uploads the one with more lines knows more. The session's row decides:
who knows more updates it and replaces the session's cases in the same transaction, any other writes nothing.
Two writers of one session wait for each other at that row. Devices are inserted in the order of their digests, so that
two transactions never wait for each other crosswise.

Worked example: a session of 5 lines uploaded while it runs and again when its 9 lines are complete is 1 new session,
then 1 grown one; a third upload, or a late one of the 5 lines, changes nothing.
"""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Connection, Insert, Table, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from pytest_npubench.errors import HistoryError
from pytest_npubench.store.history import schema
from pytest_npubench.store.history.address import Address, parse_address, shown_address
from pytest_npubench.store.history.database import write
from pytest_npubench.store.history.records import Uploaded
from pytest_npubench.store.journal_reader import Journal, Record, Session
from pytest_npubench.store.journal_runs import case_records

Row = dict[str, Any]
FIGURES = ("duration_s", "measured_s", "predicted_s", "error")
IN_COLUMNS = {
    "record",
    "session",
    "case",
    "digest",
    "device",
    "fingerprint",
    "hardware",
    "resumed",
    "is_partly_disturbed",
    "metrics",
    *FIGURES,
}
NOTHING_KNOWN = -1
LARGEST = 1e300  # a number beyond is kept in no column: its ratios are not finite


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """What one session becomes."""

    session: Row
    devices: tuple[Row, ...]
    cases: tuple[Row, ...]
    metrics: tuple[Row, ...]


def upload(url: str | Address, journal: Journal, timeout_s: float) -> Uploaded:
    """Does what upload_journal says."""
    try:
        address = parse_address(url)
        num_uploaded = write(address, lambda connection: _num_uploaded(connection, address.shown), timeout_s)
        later = [
            item for item in journal.sessions if len(item.records) > num_uploaded.get(_text(item.id), NOTHING_KNOWN)
        ]
        rows = [_rows(journal, session) for session in later]  # all of them before the first is written
        written = [own for own in rows if _store(address, own, timeout_s)]
    except HistoryError as error:
        command = shlex.join(["npubench", "history", "upload", str(journal.path), "--history", shown_address(url)])
        raise HistoryError(f"{error}; the journal is kept; repeat with: {command}") from error
    num_grown = sum(own.session["id"] in num_uploaded for own in written)
    return Uploaded(
        num_sessions=len(journal.sessions),
        num_new_sessions=len(written) - num_grown,
        num_grown_sessions=num_grown,
        num_cases=sum(len(own.cases) for own in written),
        num_metrics=sum(len(own.metrics) for own in written),
    )


def _num_uploaded(connection: Connection, shown: str) -> dict[str, int]:
    """Session -> how many of its records the history knows; the tables are made where there are none."""
    schema.prepare(connection, shown)
    rows = connection.execute(select(schema.sessions.c.id, schema.sessions.c.num_records))
    return {row[0]: row[1] for row in rows}


def _store(address: Address, rows: _Rows, timeout_s: float) -> bool:
    return write(address, lambda connection: _write(connection, rows), timeout_s)


def _write(connection: Connection, rows: _Rows) -> bool:
    """Whether the rows were written; not so where another writer brought as much in the meantime."""
    if not _claim(connection, rows.session):
        return False
    connection.execute(delete(schema.cases).where(schema.cases.c.session == rows.session["id"]))
    for device in rows.devices:
        connection.execute(_insert_once(connection, schema.devices), device)
    for table, new_rows in ((schema.cases, rows.cases), (schema.metrics, rows.metrics)):
        if new_rows:
            connection.execute(insert(table), new_rows)
    return True


def _claim(connection: Connection, row: Row) -> bool:
    """Insert or update the session's row, which keeps other writers of this session waiting until we are done."""
    table = schema.sessions
    connection.execute(_insert_once(connection, table), {**row, "num_records": NOTHING_KNOWN})
    older = update(table).where(table.c.id == row["id"], table.c.num_records < row["num_records"])
    return connection.execute(older.values(row)).rowcount == 1


def _insert_once(connection: Connection, table: Table) -> Insert:
    if connection.dialect.name == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    return sqlite.insert(table).on_conflict_do_nothing()


def _rows(journal: Journal, session: Session) -> _Rows:
    """Raises JournalError where a device record that a case refers to is missing or cannot be read."""
    latest: dict[tuple[str, str, str], Record] = {}
    for record in case_records([session]):
        key = (_text(record["case"]), _text(record["digest"]), _text(record.get("device")))
        latest[key] = record  # a case that was measured again counts once, as in the journal
    used = {record["fingerprint"] for record in latest.values() if record["fingerprint"] is not None}
    return _Rows(
        session=_session_row(session),
        devices=tuple(_device_row(journal, digest) for digest in sorted(used)),
        cases=tuple(_case_row(session.id, key, record) for key, record in latest.items()),
        metrics=tuple(row for key, record in latest.items() for row in _metric_rows(session.id, key, record)),
    )


def _session_row(session: Session) -> Row:
    header, end = session.header, session.end
    return {
        "id": _text(session.id),
        "started_at": _utc(header["started_at"]),
        "host": _text_or_none(header["host"].get("name")),
        "worker": _text_or_none(header["worker"]),
        "git_revision": _text_or_none(header["host"].get("git_revision")),
        "exit_status": None if end is None else end["exit_status"],
        "num_records": len(session.records),
        "settings": dict(header["settings"]),
    }


def _device_row(journal: Journal, digest: str) -> Row:
    fingerprint = journal.fingerprint(digest)
    key = fingerprint.key().to_json()
    return {
        "digest": _text(digest),
        **{name: _text_or_none(key.get(name)) for name in schema.KEY_PARTS},
        "host": _text(fingerprint.host.name),
        "fingerprint": fingerprint.to_json(),
    }


def _case_row(session: str, key: tuple[str, str, str], record: Record) -> Row:
    case, digest, device = key
    return {
        "session": _text(session),
        "case": case,
        "digest": digest,
        "device": device,
        "fingerprint": _text_or_none(record["fingerprint"]),
        "hardware": _text(record["hardware"]),
        "verdict": _text(record["verdict"]["kind"]),
        "reason": _text_or_none(record["verdict"].get("reason")),
        "resumed": record.get("resumed") is True,
        "is_partly_disturbed": record.get("is_partly_disturbed") is True,
        **{name: _number(record.get(name)) for name in FIGURES},
        "rest": {name: value for name, value in record.items() if name not in IN_COLUMNS},
    }


def _metric_rows(session: str, key: tuple[str, str, str], record: Record) -> list[Row]:
    """The metrics that have a finite figure; what else a writer put there stays in the journal."""
    case, digest, device = key
    metrics = record.get("metrics")
    rows = []
    for name, entry in metrics.items() if isinstance(metrics, Mapping) else ():
        value = _number(entry.get("value")) if isinstance(entry, Mapping) else None
        if value is None:
            continue
        verdict = entry.get("verdict") or {}
        is_vector = entry.get("gate") == "answers"  # what a model answered is no sample of the value: journals keep it
        samples = [] if is_vector else _numbers(entry.get("samples"))
        rows.append(
            {
                "session": _text(session),
                "case": case,
                "digest": digest,
                "device": device,
                "metric": _text(name),
                "unit": _text(entry.get("unit")),
                "better": "higher" if entry.get("better") == "higher" else "lower",
                "value": value,
                "median": statistics.median(samples) if samples else value,
                "num_samples": len(samples),
                "samples": samples,
                "gate": _text(entry.get("gate", "ratio")),  # a record from before metrics had gates
                "margin": _number(entry.get("margin")),
                "processes": _processes(entry.get("processes")),
                "compared": _text_or_none(verdict.get("kind")),
                "since": _text_or_none(verdict.get("since")),
                "alarms_among": _number(verdict.get("alarms_among")),
            }
        )
    return rows


def _processes(value: object) -> list[list[float]] | None:
    """Returns the samples of each process; None where there is one process, or none that could be kept."""
    processes: Sequence[object] = value if isinstance(value, (list, tuple)) else ()
    return [samples for samples in map(_numbers, processes) if samples] or None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or abs(value) > LARGEST:
        return None
    return float(value)


def _numbers(values: object) -> list[float]:
    items: Sequence[object] = values if isinstance(values, (list, tuple)) else ()
    return [number for number in map(_number, items) if number is not None]


def _text(value: object) -> str:
    """Text that both databases can hold: PostgreSQL takes no NUL, neither of them half a surrogate pair."""
    raw = "" if value is None else str(value)
    return raw.encode("utf-8", "replace").decode("utf-8").replace("\0", "?")


def _text_or_none(value: object) -> str | None:
    return None if value is None else _text(value)


def _utc(text: str) -> str:
    """The time in UTC to the second; as it stands where it is no ISO 8601."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return _text(text)
    return moment.astimezone(timezone.utc).isoformat(timespec="seconds")
