"""Writing the journal: an append-only file of JSON lines, one record each, that survives a kill at any instant.

A record is on the disk when `append` returns. Several processes may write one file; each record names its session.

    with JournalWriter.open(path, host=collect_host(rootdir), settings={"profile": "quick"}) as journal:
        digest = journal.device(fingerprint)
        journal.append({"record": "round", "fingerprint": digest, "campaign": "cpu-tiny-b4", ...})
        journal.append({"record": "end", "exit_status": 0, "counts": {"passed": 3}})
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType

from pytest_npubench.errors import JournalError
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.host import HostFacts
from pytest_npubench.store.journal_format import FORMAT, VERSION, check_head, check_record
from pytest_npubench.store.journal_reader import Journal, Session, read_journal
from pytest_npubench.store.json_text import JsonError, encode_line
from pytest_npubench.store.line_file import LineFile

__all__ = ["Journal", "JournalWriter", "Session", "default_path", "read_journal"]


class JournalWriter:
    """One session that appends to a journal. Threads may share it, and a forked child may go on with it."""

    def __init__(self, path: Path, session: str, file: LineFile) -> None:
        """Use `JournalWriter.open`."""
        self.path = path
        self.session = session
        self._file: LineFile | None = file
        self._num_records = 0
        self._devices: set[str] = set()

    @classmethod
    def open(
        cls, path: Path, *, host: HostFacts, settings: Mapping[str, object], worker: str | None = None
    ) -> JournalWriter:
        """Open or create the journal, with its folder, and append the session record.

        Raises JournalError where the file cannot be written, is no journal, or `settings` has no JSON form;
        FormatVersionError where the file is of a later version. In both cases the file is left as it was.
        """
        started = datetime.now(timezone.utc)
        session = f"{started:%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = LineFile(path, lambda head: check_head(path, head))
        except OSError as error:
            raise JournalError(f"journal {path}: {error.strerror}; nothing was written") from error
        writer = cls(path, session, file)
        try:
            writer._append(
                {
                    "record": "session",  # the first three stand first: they are how a file is told to be a journal
                    "format": FORMAT,
                    "version": VERSION,
                    "session": session,
                    "started_at": started.isoformat(timespec="seconds"),
                    "worker": worker,
                    "host": host.to_json(),
                    "settings": settings,
                }
            )
        except JournalError:
            writer.close()
            raise
        return writer

    def device(self, fingerprint: Fingerprint) -> str:
        """Append a device record unless this session has one; returns the digest that other records refer to."""
        digest = fingerprint.digest()
        if digest not in self._devices:
            self.append({"record": "device", "digest": digest, "fingerprint": fingerprint.to_json()})
            self._devices.add(digest)
        return digest

    def append(self, record: Mapping[str, object]) -> None:
        """Append one record: its kind under "record", then the fields of its kind; the session is added here.

        Raises JournalError where a field is missing, of a wrong type, not finite or without a JSON form (nothing is
        written then), and where the file cannot be written (what was written before is whole).
        """
        kind = record.get("record")
        if not isinstance(kind, str) or kind == "session":
            raise JournalError(f"journal {self.path}: record: want the kind of the record, found {kind!r}")
        fields = {name: value for name, value in record.items() if name not in ("record", "session")}
        self._append({"record": kind, "session": self.session, **fields})

    def close(self) -> None:
        """Close the file; a second call does nothing. An end record is the caller's to append."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, record: Mapping[str, object]) -> None:
        if self._file is None:
            raise JournalError(f"journal {self.path}: {record['record']} record after the journal was closed")
        if num_dropped := self._write(self._file, record):
            self._write(self._file, {"record": "torn", "session": self.session, "num_bytes": num_dropped})

    def _write(self, file: LineFile, record: Mapping[str, object]) -> int:
        try:
            line = encode_line(record)
            check_record(record)
            num_dropped = file.append(line)
        except JsonError as error:
            raise JournalError(f"journal {self.path}: {record['record']} record not written: {error}") from None
        except OSError as error:
            raise JournalError(
                f"journal {self.path}: {error.strerror} after {self._num_records} records; "
                "what was written before is whole"
            ) from error
        self._num_records += 1
        return num_dropped


def default_path(rootdir: Path) -> Path:
    """Where the journal lies unless an option says otherwise."""
    return rootdir / ".npubench" / "journal.jsonl"
