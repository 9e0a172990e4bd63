"""Opening a history, and transactions on it that are tried again while others hold the database.

SQLite: write-ahead log, so that readers and a writer do not wait for each other; foreign keys on; a writing transaction
begins with BEGIN IMMEDIATE, because one that starts by reading cannot wait for its turn to write.
PostgreSQL: the server's own isolation (read committed); no statement waits for a lock longer than LOCK_WAIT_S.

A database error says whether trying again may help, and what a person can do where it does not. PostgreSQL's codes:
https://www.postgresql.org/docs/current/errcodes-appendix.html. A refused connection has none, so its text is read; so
is SQLite's, whose codes Python shows from 3.11 on only.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from pytest_npubench.errors import HistoryError
from pytest_npubench.store.history.address import Address

LOCK_WAIT_S = 5.0
CONNECT_TIMEOUT_S = 10
READ_TIMEOUT_S = 30.0
FIRST_DELAY_S = 0.05
LONGEST_DELAY_S = 2.0
TRANSIENT_STATES = {
    "40001",  # serialization failure
    "40P01",  # deadlock detected
    "55P03",  # lock not available
    "53300",  # too many connections
    "57P01",  # terminated by an administrator
    "57P03",  # cannot connect now
}
TRANSIENT_TEXTS = (
    "database is locked",
    "table is locked",
    "too many clients",
    "connection slots",
    "starting up",
    "recovery mode",
    "shutting down",
)
ADVICE_BY_STATE = {
    "25006": "the server is read-only; name its primary",
    "42501": "the user may not do that; grant it the right to create and write tables",
    "55P03": "locked by another process all this time; try again later",
    "40001": "others wrote the same rows all this time; try again later",
    "40P01": "others wrote the same rows all this time; try again later",
    "53100": "the server's disk is full",
}
DAMAGED = "is damaged; move it away and upload the journals into a new one"
ADVICE_BY_TEXT = (
    ("is locked", "locked by another process all this time; see who holds it with: fuser PATH"),
    ("readonly", "read-only; make the file and its folder writable, or name another"),
    ("read-only", "read-only; make the file and its folder writable, or name another"),
    ("unable to open database file", "cannot be opened; want a file in a folder that may be written to"),
    ("is not a database", "is no SQLite database; name another file"),
    ("malformed", DAMAGED),
    ("disk is full", "the disk is full"),
    ("authentication failed", "wrong user or password"),
    ("no password supplied", "the server wants a password; give it in the URL or in ~/.pgpass"),
    ("does not exist", "the server has no such database or user; create it first"),
    ("invalid connection option", "the URL has an option that PostgreSQL does not know"),
)

Result = TypeVar("Result")


def read(address: Address, work: Callable[[Connection], Result]) -> Result:
    """Run `work` in a transaction that sees one state. Raises HistoryError where there is no history to read."""
    if address.path is not None and not address.path.is_file():
        raise HistoryError(
            f"history {address.shown}: no such file; begin one with: npubench history upload JOURNAL --history URL"
        )
    return _tried(address, _engine(address, writes=False), work, READ_TIMEOUT_S)


def write(address: Address, work: Callable[[Connection], Result], timeout_s: float) -> Result:
    """Run `work` in a writing transaction, again and again for timeout_s while others are in the way.

    The folder of an SQLite file is made. Raises HistoryError; nothing of `work` is kept then.
    """
    if address.path is not None:
        try:
            address.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HistoryError(f"history {address.shown}: {error.strerror}: {address.path.parent}") from error
    return _tried(address, _engine(address, writes=True), work, timeout_s)


def _tried(address: Address, engine: Engine, work: Callable[[Connection], Result], timeout_s: float) -> Result:
    deadline = time.monotonic() + timeout_s
    for delay_s in _delays():
        try:
            with engine.begin() as connection:
                return work(connection)
        except DBAPIError as error:
            if not is_transient(error) or time.monotonic() + delay_s > deadline:
                said = address.without_secrets(explain(error))
                raise HistoryError(f"history {address.shown}: {said}") from (None if address.secrets else error)
        except (OverflowError, UnicodeEncodeError) as error:  # of the driver, before anything was sent
            raise HistoryError(f"history {address.shown}: a number or a sign that it cannot hold ({error})") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise HistoryError(f"history {address.shown}: {DAMAGED} ({error})") from error
        time.sleep(delay_s)
    raise AssertionError("delays never end")


def _delays() -> Iterator[float]:
    """Growing pauses of random length, so that writers who met once do not meet again."""
    longest_s = FIRST_DELAY_S
    while True:
        yield longest_s * random.uniform(0.5, 1.0)
        longest_s = min(longest_s * 2, LONGEST_DELAY_S)


def _engine(address: Address, *, writes: bool) -> Engine:
    if address.path is not None:
        return _sqlite(address, writes)
    assert address.server is not None
    try:
        secrets = {name: secret.reveal() for name, secret in address.secrets.items()}
        options = {"connect_timeout": CONNECT_TIMEOUT_S, **secrets}
        engine = create_engine(address.server, poolclass=NullPool, connect_args=options)
    except ImportError as error:
        raise HistoryError(
            f"history {address.shown}: psycopg is not installed: pip install pytest-npubench[postgres]"
        ) from error

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_WAIT_S:g}s'")

    return engine


def _sqlite(address: Address, writes: bool) -> Engine:
    assert address.path is not None
    options = {"uri": "true"} if writes else {"uri": "true", "mode": "ro"}
    if not writes and _is_frozen(address):
        options["immutable"] = "1"
    database = f"file:{quote(os.fsencode(address.path.absolute()))}"
    engine = create_engine(URL.create("sqlite", database=database, query=options), poolclass=NullPool)

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves; sqlite3 would not before CREATE TABLE
        connection.execute(f"PRAGMA busy_timeout = {LOCK_WAIT_S * 1e3:.0f}")
        connection.execute("PRAGMA foreign_keys = ON")
        if writes:
            connection.execute("PRAGMA journal_mode = WAL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _is_frozen(address: Address) -> bool:
    """Whether nobody can be writing: SQLite cannot read a write-ahead log in a folder it may not write to."""
    assert address.path is not None
    return not os.access(address.path.parent, os.W_OK) and not Path(f"{address.path}-wal").exists()


def is_transient(error: DBAPIError) -> bool:
    """Whether the same transaction may succeed a little later."""
    text = str(error.orig).lower()
    return error.connection_invalidated or _state(error) in TRANSIENT_STATES or _any(TRANSIENT_TEXTS, text)


def explain(error: DBAPIError) -> str:
    """What to do, then the database's own words on one line."""
    text = " ".join(str(error.orig).split())
    by_text = (advice for part, advice in ADVICE_BY_TEXT if part in text.lower())
    advice = ADVICE_BY_STATE.get(_state(error) or "") or next(by_text, None)
    if advice is None:
        advice = "cannot be reached" if _state(error) is None and "connection" in text else "failed"
    return f"{advice} ({text})"


def _state(error: DBAPIError) -> str | None:
    state = getattr(error.orig, "sqlstate", None)
    return state if isinstance(state, str) else None


def _any(parts: tuple[str, ...], text: str) -> bool:
    return any(part in text for part in parts)
