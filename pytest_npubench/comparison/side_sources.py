"""Where the sides of a comparison come from: a journal, one of its sessions, a folder of baselines, a history.

    journal.jsonl                     every finished run in it
    journal.jsonl@SESSION             one run
    baselines                         every accepted session
    history:URL?driver=570.86         the sessions of a history that fit; since=2026-11-01 from a day on

Worked example: "history:.npubench/history.db?driver=570.86&since=2026-11-01".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from pytest_npubench.comparison.earlier_nights import row_observation
from pytest_npubench.comparison.journal_sessions import journal_sessions
from pytest_npubench.comparison.observation import Key, Observation
from pytest_npubench.comparison.sides import (
    ANY_DIGEST,
    UNKNOWN,
    Side,
    SideSession,
    fingerprint_facts,
    key_facts,
    make_side,
)
from pytest_npubench.core.run_folders import RunFolders
from pytest_npubench.errors import BaselineError, ConfigError, HistoryError
from pytest_npubench.plain_text import counted
from pytest_npubench.store.aliases import Aliases
from pytest_npubench.store.baselines import Baselines
from pytest_npubench.store.fingerprint import FingerprintKey
from pytest_npubench.store.history import DEFAULT_URL, SeriesRow, history_series, history_sessions, moment_in_utc
from pytest_npubench.store.history.address import shown_address
from pytest_npubench.store.journal_reader import read_journal

HISTORY = "history:"
SELECTORS = (*FingerprintKey.__slots__, "device", "git_revision", "hardware", "host", "session")


def load_side(text: str) -> Side:
    """Returns the side that a user named. Raises StoreError where it cannot be read, ConfigError for a query that is
    none.

    What cannot be compared is left out, and said in the side's notes; a side may come out empty.
    """
    if text.startswith(HISTORY):
        return _history_side(text)
    path, session = _path_and_session(text)
    if path.is_dir():
        return _baselines_side(text, path)
    return journal_sessions(text, read_journal(path), session)


def side_path(text: str) -> Path:
    """Returns the file or folder that a side is read from. Of a history elsewhere it is a path that does not exist."""
    if text.startswith(HISTORY):
        return Path(text.removeprefix(HISTORY).partition("?")[0])
    return _path_and_session(text)[0]


def _path_and_session(text: str) -> tuple[Path, str | None]:
    """A path may hold an @ itself: what exists as it stands is taken so."""
    whole, (head, separator, tail) = Path(text), text.rpartition("@")
    if whole.exists() or not separator or not head:
        return whole, None
    return Path(head), tail


@dataclass(slots=True, kw_only=True)
class _OpenSource:
    """A session that is being put together from rows."""

    started_at: str
    facts: dict[str, str]
    whole: bool
    observations: dict[Key, Observation] = field(default_factory=dict)

    def closed(self, name: str, ids: Iterable[str]) -> SideSession:
        return SideSession(
            name=name,
            ids=frozenset(ids),
            started_at=self.started_at,
            facts=self.facts,
            whole=self.whole,
            observations=self.observations,
            invalid={},
        )


def _baselines_side(label: str, directory: Path) -> Side:
    loaded = Baselines.load(directory)
    if not loaded.files:
        raise BaselineError(f"baselines {directory}: nothing was accepted yet")
    sessions: dict[tuple[str, FingerprintKey], _OpenSource] = {}
    for file in loaded.files:
        for name, case in file.cases.items():
            current, digest = _current(loaded.aliases, name, case.digest)
            for session in case.sessions:
                began = session.accepted_time.astimezone(timezone.utc).isoformat(timespec="seconds")
                facts = {**key_facts(file.key), "git_revision": session.git_revision or UNKNOWN}
                if stack := file.stacks.get(session.session):
                    facts = fingerprint_facts(stack.fingerprint, stack.device)
                new = _OpenSource(started_at=began, facts=facts, whole=stack is not None)
                source = sessions.setdefault((session.session, file.key), new)
                for metric, kept in session.metrics.items():
                    quantity = asdict(case.metrics[metric])
                    source.observations[current, metric] = Observation(
                        case=current, digest=digest, metric=metric, processes=kept.processes, **quantity
                    )
    return make_side(label, (source.closed(name, [name]) for (name, _), source in sessions.items()))


def _current(aliases: Aliases, case: str, digest: str) -> tuple[str, str]:
    """Returns the name and digest that a renamed case has now; any digest where none was bound yet."""
    while (alias := aliases.entries.get(case)) is not None and digest in (alias.digest, ANY_DIGEST):
        case, digest = alias.case, alias.case_digest or ANY_DIGEST
    return case, digest


def _history_side(text: str) -> Side:
    url, where, since = _query(text)
    ended = {row.session for row in history_sessions(url, since=since) if row.exit_status is not None}
    rows = history_series(url, where=where, since=since)
    sessions: dict[tuple[str, str, FingerprintKey], _OpenSource] = {}
    for row in rows:
        if row.session in ended and row.gate not in ("none", "answers"):
            new = _OpenSource(started_at=row.started_at, facts=_row_facts(row), whole=row.fingerprint is not None)
            source = sessions.setdefault((row.session, row.device, row.key), new)
            source.observations[row.case, row.metric] = row_observation(row)
    names = [session for session, _, _ in sessions]
    num_running = len({row.session for row in rows} - ended)
    notes = [f"left out: {counted(num_running, 'session')} without an end record"] if num_running else []
    if any(row.gate == "answers" for row in rows):
        notes.append("a history keeps no answers: compare journals, or baselines with a journal, for those")
    return make_side(
        _label(url, where, since),
        (
            source.closed(*_names(session, device, several=names.count(session) > 1))
            for (session, device, _), source in sessions.items()
        ),
        notes,
    )


def _label(url: str, where: Mapping[str, str], since: datetime | None) -> str:
    """Returns the side as it was asked for, without secrets."""
    asked = [*where.items(), *([("since", since.isoformat())] if since else [])]
    shown = shown_address(url)
    return f"{HISTORY}{shown}{('&' if '?' in shown else '?') if asked else ''}{urlencode(asked)}"


def _names(session: str, device: str, *, several: bool) -> tuple[str, tuple[str, ...]]:
    """Returns the name of one device's part of a session, and all its names."""
    full = f"{session}@{device}"
    return (full, (full,)) if several else (session, (session, full))


def _row_facts(row: SeriesRow) -> dict[str, str]:
    if row.fingerprint is not None:
        return fingerprint_facts(row.fingerprint, row.device)
    return {
        **key_facts(row.key),
        "git_revision": row.git_revision or UNKNOWN,
        "host": row.host or UNKNOWN,
        "device": row.device,
    }


def _query(text: str) -> tuple[str, dict[str, str], datetime | None]:
    """URL, selectors and since. Of a server's URL what is no selector is its own."""
    url, _, query = text.removeprefix(HISTORY).partition("?")
    pairs = parse_qsl(query, keep_blank_values=True)
    of_server = url.startswith("postgres")
    rest = [(name, value) for name, value in pairs if name not in (*SELECTORS, "since")]
    if rest and not of_server:
        raise ConfigError(f"history query: {rest[0][0]!r} is not known; allowed are {', '.join(SELECTORS)} and since")
    where = {name: value for name, value in pairs if name in SELECTORS}
    since = dict(pairs).get("since")
    url = (f"{url}?{urlencode(rest)}" if rest else url) or RunFolders.here().history or DEFAULT_URL
    return url, where, _moment(since)


def _moment(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return moment_in_utc(text)
    except ValueError:
        raise HistoryError(f"history query: since={text}: want a date such as 2026-11-21 or 2026-11-21T13:00") from None
