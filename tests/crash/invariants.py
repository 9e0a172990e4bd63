"""What holds after every kill, checked on the files alone and computed anew from the journals where that is possible.

The oracle is written out here rather than borrowed from the package: which cases a baseline session or an uploaded
session has to have follows from the lines of its session in the journal.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from plugin.project import Project

from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.journal import Journal, Session, read_journal

HISTORY = "history.db"
REPORT = "report.html"
OLD_JOURNAL = "yesterday.jsonl"
ORPHAN_S = 30.0
Cases = dict[tuple[str, str, str], Mapping[str, Any]]  # (case, digest, device) -> its latest record


def check_all(project: Project, before: bytes) -> None:
    """Everything below. `before` is the journal as it was before the process that was killed."""
    check_journal(project, before)
    sessions = all_sessions(project)
    check_baselines(project, sessions)
    check_history(project, sessions)
    check_locks(project)


def journal_bytes(project: Project) -> bytes:
    return project.journal_path.read_bytes() if project.journal_path.exists() else b""


def all_sessions(project: Project) -> dict[str, tuple[Journal, Session]]:
    """The sessions of the journal and of yesterday's by their ids."""
    paths = [path for path in (project.root / OLD_JOURNAL, project.journal_path) if path.exists()]
    return {session.id: (journal, session) for journal in map(read_journal, paths) for session in journal.sessions}


def check_journal(project: Project, before: bytes) -> None:
    """It can be read, only its end may be torn, and no line that was whole before is lost or changed."""
    after = journal_bytes(project)
    whole = before[: before.rfind(b"\n") + 1]
    assert after.startswith(whole), "a line of the journal that was acknowledged is gone or changed"
    if not project.journal_path.exists():
        return
    journal = read_journal(project.journal_path)
    tail = after[after.rfind(b"\n") + 1 :]
    said = [text for text in journal.torn if "without a line end" in text]
    assert len(said) == bool(tail), f"torn tail {tail!r}, reported {journal.torn}"


def check_baselines(project: Project, sessions: Mapping[str, tuple[Journal, Session]]) -> None:
    """They can be read, and each session stands in a file with all its cases there, or not at all."""
    directory = project.root / "baselines"
    for file in Baselines.load(directory, missing_ok=True).files:
        found: dict[str, dict[str, Any]] = {}
        for case, entry in file.cases.items():
            names = [session.session for session in entry.sessions]
            assert len(set(names)) == len(names), f"{case}: a session stands twice: {names}"
            for session in entry.sessions:
                samples = {name: kept.processes for name, kept in session.metrics.items()}
                found.setdefault(session.session, {})[case] = entry.digest, samples
        for name, cases in found.items():
            journal, session = sessions[name]
            assert session.end is not None, f"{file.relative_path}: {name} never ended"
            assert session.end["exit_status"] in (0, 1), f"{file.relative_path}: {name} did not end by itself"
            assert cases == _acceptable(journal, session, file), f"{file.relative_path}: {name} is not whole"


def _acceptable(journal: Journal, session: Session, file: Any) -> dict[str, Any]:
    """Case -> digest and samples of what the session measured for a baseline file, where it was green."""
    expected = {}
    for (case, digest, _), record in latest_cases(session.records).items():
        own = record["hardware"] == file.hardware and case.partition("/")[0] == file.suite
        green = record["verdict"]["kind"] not in ("failed", "invalid", "regressed")
        if own and green and not record["resumed"] and journal.fingerprint(record["fingerprint"]).key() == file.key:
            gated = {name: metric for name, metric in record["metrics"].items() if metric["gate"] != "none"}
            if gated:
                expected[case] = digest, {name: (_samples(metric),) for name, metric in gated.items()}
    return expected


def _samples(metric: Mapping[str, Any]) -> tuple[float, ...]:
    return tuple(metric["samples"] or [metric["value"]])


def check_history(project: Project, sessions: Mapping[str, tuple[Journal, Session]]) -> None:
    """The database is sound, and each session in it is what its first lines in the journal say, whole.

    A copy is looked at, so that the next process is the first to meet what the kill left.
    """
    if not (project.root / HISTORY).exists():
        return
    with tempfile.TemporaryDirectory() as folder:
        for path in project.root.glob(f"{HISTORY}*"):
            shutil.copy(path, folder)
        with closing(sqlite3.connect(Path(folder) / HISTORY)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert database.execute("PRAGMA foreign_key_check").fetchall() == []
            if _has_tables(database):
                _check_rows(database, sessions)


def _has_tables(database: sqlite3.Connection) -> bool:
    """All of them, or none yet."""
    names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    assert len(names) in (0, 5), names
    return bool(names)


def _check_rows(database: sqlite3.Connection, sessions: Mapping[str, tuple[Journal, Session]]) -> None:
    known = database.execute("SELECT id, num_records, exit_status FROM npubench_sessions").fetchall()
    for name, num_records, exit_status in known:
        assert 0 <= num_records <= len(sessions[name][1].records), f"history: {name} has {num_records} records"
        records = sessions[name][1].records[:num_records]
        ends = [record["exit_status"] for record in records if record["record"] == "end"]
        assert exit_status == (ends[0] if ends else None), f"history: {name} ended with {exit_status}, not {ends}"
        expected = latest_cases(records)
        assert history_cases(database, name) == _as_rows(expected), f"history: the cases of {name} are not whole"
        assert _history_metrics(database, name) == _metrics(expected), f"history: the metrics of {name} are not whole"


def history_cases(database: sqlite3.Connection, session: str) -> set[tuple[Any, ...]]:
    statement = 'SELECT "case", digest, device, verdict, resumed FROM npubench_cases WHERE session = ?'
    return set(database.execute(statement, (session,)).fetchall())


def _as_rows(cases: Cases) -> set[tuple[Any, ...]]:
    return {(*key, record["verdict"]["kind"], int(record["resumed"])) for key, record in cases.items()}


def _history_metrics(database: sqlite3.Connection, session: str) -> set[tuple[Any, ...]]:
    statement = 'SELECT "case", digest, device, metric, value, num_samples FROM npubench_metrics WHERE session = ?'
    return set(database.execute(statement, (session,)).fetchall())


def _metrics(cases: Cases) -> set[tuple[Any, ...]]:
    return {
        (*key, name, metric["value"], len(metric["samples"] or ()))
        for key, record in cases.items()
        for name, metric in record["metrics"].items()
        if metric["value"] is not None
    }


def latest_cases(records: Iterable[Mapping[str, Any]]) -> Cases:
    return {
        (record["case"], record["digest"], record["device"]): record for record in records if record["record"] == "case"
    }


def check_locks(project: Project) -> None:
    """Nobody holds a lock: those of devices and of the baselines, and the journal's on itself.

    A process that measured for the killed one has the device until it notices, within moments.
    """
    deadline_s = time.monotonic() + ORPHAN_S
    for path in (*project.root.rglob("*.lock"), project.journal_path):
        while path.exists() and not _is_free(path):
            assert time.monotonic() < deadline_s, f"{path} is stuck"
            time.sleep(0.01)


def _is_free(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


TEMPFILE_PROBE = re.compile(r"tmp/[a-z0-9_]{8}")  # tempfile tries a folder with one, and a kill may come between
HALF = re.compile(r"(^|/)\.npubench-[0-9a-f]{16}\.tmp$")


def files(project: Project) -> set[str]:
    """The project's files, but for what Python and pytest keep for themselves and files that were not written whole."""
    found = (path.relative_to(project.root) for path in project.root.rglob("*") if path.is_file())
    kept = (path.as_posix() for path in found if not {"__pycache__", ".pytest_cache"} & set(path.parts))
    return {name for name in kept if not (TEMPFILE_PROBE.fullmatch(name) or HALF.search(name))}


def allowed_leftovers(names: Iterable[str]) -> set[str]:
    """What a kill may leave beside these files: of each at most one, of a name that the next process uses again."""
    paths = list(map(Path, names))
    notes = {str(path.with_suffix(".holder")) for path in paths if path.suffix == ".lock"}
    return notes | {f"{HISTORY}-wal", f"{HISTORY}-shm", f"{HISTORY}-journal"}
