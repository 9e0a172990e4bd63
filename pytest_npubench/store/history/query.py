"""Reading the history: what was measured, session by session, narrowed by the stack it ran on."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, exists, func, or_, select

from pytest_npubench.errors import ConfigError, HistoryError
from pytest_npubench.store.fingerprint import Fingerprint, FingerprintKey
from pytest_npubench.store.history import schema
from pytest_npubench.store.history.address import Address, parse_address
from pytest_npubench.store.history.database import DAMAGED, read
from pytest_npubench.store.history.records import LatestCase, SeriesRow, SessionRow
from pytest_npubench.verdict import VerdictKind

UNKNOWN = "unknown"
COLUMNS: Mapping[str, ColumnElement[Any]] = {
    **{name: schema.devices.c[name] for name in schema.KEY_PARTS},
    "device": schema.cases.c.device,
    "git_revision": schema.sessions.c.git_revision,
    "hardware": schema.cases.c.hardware,
    "host": schema.sessions.c.host,
    "session": schema.sessions.c.id,
}
OF_SESSIONS = ("git_revision", "host", "session")


def series(
    url: str | Address, *, case: str | None, metric: str | None, where: Mapping[str, str], since: datetime | None
) -> tuple[SeriesRow, ...]:
    """Answers history_series."""
    metrics, sessions = schema.metrics.c, schema.sessions.c
    query = _joined(
        select(
            *metrics,
            sessions.started_at,
            sessions.host,
            sessions.git_revision,
            schema.cases.c.hardware,
            schema.cases.c.verdict,
            schema.cases.c.is_partly_disturbed,
            schema.cases.c.fingerprint.label("stack"),
            *(schema.devices.c[name] for name in schema.KEY_PARTS),
        )
    )
    query = query.where(*_conditions(where), *_valid(), *_since(since))
    if case is not None:
        query = query.where(metrics["case"] == case)
    if metric is not None:
        query = query.where(metrics.metric == metric)
    query = query.order_by(
        sessions.started_at, metrics.session, metrics["case"], metrics.digest, metrics.device, metrics.metric
    )
    address = parse_address(url)

    def work(connection: Connection) -> tuple[SeriesRow, ...]:
        schema.check(connection, address.shown)
        rows = _intact(connection.execute(query).mappings().all(), address)
        stacks = _fingerprints(connection, {row["stack"] for row in rows})
        return tuple(_series_row(row, stacks[row["stack"]]) for row in rows)

    return read(address, work)


def sessions(
    url: str | Address, *, where: Mapping[str, str], since: datetime | None, limit: int | None
) -> tuple[SessionRow, ...]:
    """Answers history_sessions."""
    table = schema.sessions
    query = select(table).where(*_since(since)).order_by(table.c.started_at.desc(), table.c.id.desc()).limit(limit)
    of_session = {name: value for name, value in where.items() if name in OF_SESSIONS}
    query = query.where(*_conditions(of_session))
    if rest := {name: value for name, value in where.items() if name not in OF_SESSIONS}:
        matching = select(schema.cases.c.session).join(schema.devices, isouter=True).where(*_conditions(rest))
        query = query.where(exists(matching.where(schema.cases.c.session == table.c.id).correlate(table)))
    address = parse_address(url)

    def work(connection: Connection) -> tuple[SessionRow, ...]:
        schema.check(connection, address.shown)
        return tuple(
            _session_row(connection, row) for row in _intact(connection.execute(query).mappings().all(), address)
        )

    return read(address, work)


def latest_cases(url: str | Address) -> tuple[LatestCase, ...]:
    cases, table = schema.cases.c, schema.sessions.c
    age = func.rank().over(
        partition_by=(cases["case"], cases.hardware, table.host), order_by=(table.started_at.desc(), table.id.desc())
    )
    columns = (cases["case"], cases.hardware, cases.device, cases.verdict, cases.reason, table.host, table.started_at)
    every = (
        select(*columns, schema.devices.c.device_class, age.label("age"))
        .select_from(schema.cases.join(schema.sessions).join(schema.devices, isouter=True))
        .subquery()
    )
    query = select(every).where(every.c.age == 1).order_by(every.c["case"], every.c.device)
    address = parse_address(url)

    def work(connection: Connection) -> tuple[LatestCase, ...]:
        schema.check(connection, address.shown)
        rows = _intact(connection.execute(query).mappings().all(), address)
        return tuple(LatestCase(**{name: row[name] for name in LatestCase.__slots__}) for row in rows)

    return read(address, work)


def median_durations(url: str | Address) -> dict[str, float]:
    """Answers durations."""
    cases = schema.cases.c
    query = select(cases["case"], cases.duration_s).where(cases.duration_s.is_not(None), *_valid())
    address = parse_address(url)

    def work(connection: Connection) -> dict[str, float]:
        schema.check(connection, address.shown)
        durations: dict[str, list[float]] = {}
        for case, duration_s in connection.execute(query.order_by(cases["case"])):
            durations.setdefault(case, []).append(duration_s)
        return {case: statistics.median(values) for case, values in durations.items()}

    return read(address, work)


def _joined(query: Select[Any]) -> Select[Any]:
    joined = schema.metrics.join(schema.cases).join(schema.sessions).join(schema.devices)
    return query.select_from(joined)


def _conditions(where: Mapping[str, str]) -> list[ColumnElement[bool]]:
    """Raises ConfigError naming what may be asked for."""
    if strange := sorted(where.keys() - COLUMNS.keys()):
        raise ConfigError(f"history: cannot select by {strange[0]!r}; allowed are {', '.join(COLUMNS)}")
    return [_equals(COLUMNS[name], value) for name, value in where.items()]


def _equals(column: ColumnElement[Any], value: str) -> ColumnElement[bool]:
    return or_(column.is_(None), column == value) if value == UNKNOWN else column == value


def _valid() -> tuple[ColumnElement[bool], ...]:
    """Invalid results were not measured properly, and resumed ones would count another session's samples twice."""
    return schema.cases.c.verdict != VerdictKind.INVALID.value, schema.cases.c.resumed.is_(False)


def _since(moment: datetime | None) -> tuple[ColumnElement[bool], ...]:
    if moment is None:
        return ()
    return (schema.sessions.c.started_at >= moment.astimezone(timezone.utc).isoformat(timespec="seconds"),)


def _intact(rows: Sequence[RowMapping], address: Address) -> Sequence[RowMapping]:
    """Raises HistoryError where a median is no number, or a time is not written as uploads write it."""
    wrong: list[object] = [row["median"] for row in rows if not isinstance(row.get("median", 0.0), float)]
    for time in {row["started_at"] for row in rows}:
        try:
            wrong += [] if datetime.fromisoformat(time).isoformat() == time else [time]
        except (TypeError, ValueError):
            wrong.append(time)
    if wrong:
        raise HistoryError(f"history {address.shown}: {DAMAGED} (it holds {wrong[0]!r})")
    return rows


def _key(row: RowMapping) -> FingerprintKey:
    return FingerprintKey(**{name: row[name] for name in FingerprintKey.__slots__})


def _fingerprints(connection: Connection, digests: Collection[str]) -> dict[str, Fingerprint | None]:
    """Returns the fingerprints by digest. Raises StoreError where the history was altered."""
    columns = schema.devices.c
    devices = connection.execute(select(columns.digest, columns.fingerprint).where(columns.digest.in_(digests)))
    return {digest: None if content is None else Fingerprint.from_json(content) for digest, content in devices}


def _series_row(row: RowMapping, fingerprint: Fingerprint | None) -> SeriesRow:
    names = SeriesRow.__slots__
    plain = {name: row[name] for name in names if name not in ("key", "samples", "processes", "fingerprint")}
    samples = tuple(row["samples"] or ())
    processes = tuple(map(tuple, row["processes"] or [samples or [row["value"]]]))
    return SeriesRow(key=_key(row), samples=samples, processes=processes, fingerprint=fingerprint, **plain)


def _session_row(connection: Connection, row: RowMapping) -> SessionRow:
    of_session = schema.cases.c.session == row["id"]
    counts = select(schema.cases.c.verdict, func.count()).where(of_session).group_by(schema.cases.c.verdict)
    used = select(schema.devices).where(
        schema.devices.c.digest.in_(select(schema.cases.c.fingerprint).where(of_session))
    )
    return SessionRow(
        session=row["id"],
        keys=tuple(dict.fromkeys(map(_key, connection.execute(used.order_by("digest")).mappings()))),
        verdicts={found[0]: found[1] for found in connection.execute(counts.order_by(schema.cases.c.verdict))},
        settings=row["settings"] or {},
        **{name: row[name] for name in ("started_at", "host", "worker", "git_revision", "exit_status")},
    )
