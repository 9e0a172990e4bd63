"""The history: sessions of many journals in one database, SQLite in a file or PostgreSQL for a fleet of runners.

Journals stay the source: an upload may be repeated at any time, and a lost history is rebuilt from them.
SQLAlchemy is imported on first use only. docs/history.md describes use, docs/formats.md the tables.

    uploaded = upload_journal(".npubench/history.db", read_journal(path))
    rows = history_series(".npubench/history.db", metric="tbt_s", where={"driver": "570.86"})
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone

from pytest_npubench.errors import HistoryError
from pytest_npubench.store.history.address import Address, shown_address
from pytest_npubench.store.history.records import LatestCase, SeriesRow, SessionRow, Uploaded
from pytest_npubench.store.journal_reader import Journal

__all__ = [
    "DEFAULT_URL",
    "UPLOAD_TIMEOUT_S",
    "LatestCase",
    "SeriesRow",
    "SessionRow",
    "Uploaded",
    "durations",
    "history_series",
    "history_sessions",
    "latest_cases",
    "moment_in_utc",
    "upload_journal",
]

DEFAULT_URL = ".npubench/history.db"
UPLOAD_TIMEOUT_S = 60.0


def upload_journal(url: str | Address, journal: Journal, *, timeout_s: float = UPLOAD_TIMEOUT_S) -> Uploaded:
    """Put every session of a journal into the history, which is created where it is not there yet.

    A session that is there already is completed where the journal knows more of it, and left alone otherwise. A
    database locked by others is tried again for timeout_s seconds a session. Raises HistoryError with what to do;
    sessions uploaded before it stay, and the upload can be repeated. Raises JournalError where a device record or a
    reference to one cannot be read.
    """
    with _needing_sqlalchemy(url):
        from pytest_npubench.store.history.upload import upload
    return upload(url, journal, timeout_s)


def history_series(
    url: str | Address,
    case: str | None = None,
    metric: str | None = None,
    where: Mapping[str, str] | None = None,
    *,
    since: datetime | None = None,
) -> tuple[SeriesRow, ...]:
    """What was measured: one row a session, case, device and metric, by start of the session, then by name.

    `where` narrows by parts of the fingerprint key and by device, git_revision, hardware, host or session; the value
    "unknown" finds what is not known. Left out are invalid results, and results that a resumed run took over from
    another session, which stand there. Raises HistoryError, and ConfigError on an unknown name in `where`.
    """
    with _needing_sqlalchemy(url):
        from pytest_npubench.store.history.query import series
    return series(url, case=case, metric=metric, where=where or {}, since=since)


def history_sessions(
    url: str | Address,
    where: Mapping[str, str] | None = None,
    *,
    since: datetime | None = None,
    limit: int | None = None,
) -> tuple[SessionRow, ...]:
    """The sessions, newest first, at most `limit`; `where` as in history_series. Raises HistoryError, ConfigError."""
    with _needing_sqlalchemy(url):
        from pytest_npubench.store.history.query import sessions
    return sessions(url, where=where or {}, since=since, limit=limit)


def latest_cases(url: str | Address) -> tuple[LatestCase, ...]:
    """The newest record of each case on each device of a hardware file on a host; of a session on several devices all
    of them. Raises HistoryError."""
    with _needing_sqlalchemy(url):
        from pytest_npubench.store.history.query import latest_cases as query
    return query(url)


def durations(url: str | Address) -> dict[str, float]:
    """Case key -> the median of the seconds it took; invalid and resumed results left out. Raises HistoryError."""
    with _needing_sqlalchemy(url):
        from pytest_npubench.store.history.query import median_durations
    return median_durations(url)


def moment_in_utc(text: str) -> datetime:
    """A day or time of day in ISO 8601; in UTC unless it says otherwise. Raises ValueError, also where the time in UTC
    lies before the year 1 or after 9999."""
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc)
    except OverflowError as error:
        raise ValueError(f"{text}: {error}") from None


@contextmanager
def _needing_sqlalchemy(url: str | Address) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "sqlalchemy":
            raise
        raise HistoryError(
            f"history {shown_address(url)}: sqlalchemy is not installed: pip install pytest-npubench[history]"
        ) from error
