"""What a database error means: whether trying again may help, and what a person can do where it does not.

PostgreSQL's codes: https://www.postgresql.org/docs/current/errcodes-appendix.html. A refused connection has none, so
its text is read; so is SQLite's, whose codes Python shows from 3.11 on only.
"""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError

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
ADVICE_BY_TEXT = (
    ("is locked", "locked by another process all this time; see who holds it with: fuser PATH"),
    ("readonly", "read-only; make the file and its folder writable, or name another"),
    ("read-only", "read-only; make the file and its folder writable, or name another"),
    ("unable to open database file", "cannot be opened; want a file in a folder that may be written to"),
    ("is not a database", "is no SQLite database; name another file"),
    ("malformed", "is damaged; move it away and upload the journals into a new one"),
    ("disk is full", "the disk is full"),
    ("authentication failed", "wrong user or password"),
    ("no password supplied", "the server wants a password; give it in the URL or in ~/.pgpass"),
    ("does not exist", "the server has no such database or user; create it first"),
    ("invalid connection option", "the URL has an option that PostgreSQL does not know"),
)


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
