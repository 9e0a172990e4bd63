"""Writing the journal: an append-only file of JSON lines, one record each, that survives a kill at any instant.

A record is on the disk when `append` returns. Several processes may write one file; each record names its session.

    with JournalWriter.open(path, host=collect_host(rootdir), settings={"profile": "quick"}) as journal:
        digest = journal.device(fingerprint)
        journal.append({"record": "round", "fingerprint": digest, "campaign": "cpu-tiny-b4", ...})
        journal.append({"record": "end", "exit_status": 0, "counts": {"passed": 3}})
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path

from pytest_npubench.core.documents import check_depth
from pytest_npubench.core.regular_file import read_bytes
from pytest_npubench.core.secret import masked
from pytest_npubench.errors import JournalError
from pytest_npubench.store.fingerprint import Fingerprint, HostFacts
from pytest_npubench.store.journal_format import (
    FORMAT,
    MAX_BYTES,
    VERSION,
    check_head,
    check_record,
    new_id,
    sealed,
    unsealed,
)
from pytest_npubench.store.journal_reader import Journal, Session, read_journal
from pytest_npubench.store.json_text import encode, plain
from pytest_npubench.store.line_file import LineFile

__all__ = ["Journal", "JournalWriter", "Session", "read_journal"]


ADDED = frozenset({"record", "session", "sequence", "crc32"})
NUMBER_BYTES = 8
HISTORY, HISTORY_KEY = "--npubench-history", "npubench_history"
"""How a run is told its history: on the command line, and in ini files and [tool.npubench]."""


class JournalWriter:
    """One session that appends to a journal. Threads may share it, and a forked child may go on with it."""

    def __init__(self, path: Path, session: str, file: LineFile) -> None:
        """Use `JournalWriter.open`."""
        self.path = path
        self.session = session
        self._file: LineFile | None = file
        self._numbers = _LineNumbers(path, session)
        self._devices: set[str] = set()

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        host: HostFacts,
        settings: Mapping[str, object],
        worker: str | None = None,
        run: str | None = None,
    ) -> JournalWriter:
        """Open or create the journal, with its folder, and append the session record.

        `run` is the id that all sessions of one run share; None where this session is the whole run.

        Raises JournalError where the file cannot be written, is no journal, or `settings` has no JSON form;
        FormatVersionError where the file is of a later version. In both cases the file is left as it was.
        """
        session, started = new_id(), datetime.now(timezone.utc)
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
                    "run": run or session,
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
        """Append one record: its kind under "record", then the fields of its kind; session and seal are added here.

        Raises JournalError where a field is missing, of a wrong type, not finite or without a JSON form (nothing is
        written then), and where the file cannot be written (what was written before is whole).
        """
        kind = record.get("record")
        if not isinstance(kind, str) or kind == "session":
            raise JournalError(f"journal {self.path}: record: want the kind of the record, found {kind!r}")
        fields = {name: value for name, value in record.items() if name not in ADDED}
        self._append({"record": kind, "session": self.session, **fields})

    def close(self) -> None:
        """Close the file; a second call does nothing. An end record is the caller's to append."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _append(self, record: Mapping[str, object]) -> None:
        if self._file is None:
            raise JournalError(f"journal {self.path}: {record['record']} record after the journal was closed")
        if num_dropped := self._write(self._file, record):
            self._write(self._file, {"record": "torn", "session": self.session, "num_bytes": num_dropped})

    def _write(self, file: LineFile, record: Mapping[str, object]) -> int:
        try:
            content = plain(record)
            body = encode(content)
            check_depth(body)
            check_record(content)
            with file.appending() as num_dropped:
                file.write(sealed(body, self._numbers.take()))
                self._numbers.written()
        except ValueError as error:
            raise JournalError(f"journal {self.path}: {record['record']} record not written: {error}") from None
        except OSError as error:
            raise JournalError(
                f"journal {self.path}: {error.strerror} after {self._numbers.num_written} records; "
                "what was written before is whole"
            ) from error
        return num_dropped


class _LineNumbers:
    """Which number a session's next line has, in memory that forked processes share.

    A line is numbered and written under the file's lock. A number that was taken and not written is still in flight
    when the next is asked for: its writer was killed or failed, and only the file knows whether the line is there.
    """

    def __init__(self, path: Path, session: str) -> None:
        self._path = path.absolute()
        self._session = session
        self._shared = mmap.mmap(-1, 2 * NUMBER_BYTES)

    @property
    def num_written(self) -> int:
        return int.from_bytes(self._shared[:NUMBER_BYTES], "little")

    def take(self) -> int:
        """The number of a line that is written next, under the lock. Raises OSError."""
        if self._shared[NUMBER_BYTES]:
            self._set(self._num_in_file(), in_flight=False)
        self._set(self.num_written, in_flight=True)
        return self.num_written

    def written(self) -> None:
        """The line is on the disk; still under the lock."""
        self._set(self.num_written + 1, in_flight=False)

    def _set(self, num_written: int, *, in_flight: bool) -> None:
        self._shared[:] = num_written.to_bytes(NUMBER_BYTES, "little") + bytes([in_flight]) * NUMBER_BYTES

    def _num_in_file(self) -> int:
        mine = f'"session":"{self._session}"'.encode()
        lines = read_bytes(self._path, MAX_BYTES).split(b"\n")
        numbers = [sealed_line[1] for line in lines if mine in line and (sealed_line := unsealed(line))]
        return max(numbers, default=-1) + 1


def recorded(arguments: Sequence[str]) -> list[str]:
    """pytest's arguments as a journal or an A/B run keeps them: a history without its secrets, however the option was
    given, and every other address without its password."""
    kept: list[str] = []
    for before, argument in pairwise(("", *arguments)):
        given = re.match(rf".*(?:{HISTORY}|{HISTORY_KEY})\s*=\s*", argument)
        if before != HISTORY and given is None:
            kept.append(masked(argument))
            continue
        from pytest_npubench.store.history.address import shown_address

        option = "" if given is None or before == HISTORY else given[0]
        kept.append(option + shown_address(argument.removeprefix(option)))
    return kept
