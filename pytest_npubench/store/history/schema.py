"""The tables of the history, version 3 (docs/formats.md), and how a database is told to be a history of ours.

Names begin with npubench_, because a PostgreSQL database may hold other tables too. A history of another version is
made again from the journals.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Connection,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
)

from pytest_npubench.errors import HistoryError

VERSION = 3
CREATING = 0x6E707562656E6368  # "npubench", the name of PostgreSQL's lock that one creator holds

KEY_PARTS = (
    "accelerator",
    "device_class",
    "driver",
    "firmware",
    "runtime",
    "compiler",
    "power_policy",
    "clock_policy",
)
METADATA = MetaData()
JSON_OR_NULL = JSON(none_as_null=True)

version = Table(
    "npubench_history",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1: the table has one row
    Column("version", Integer, nullable=False),
)
sessions = Table(
    "npubench_sessions",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("started_at", Text, nullable=False, index=True),  # ISO 8601 in UTC, so text order is time order
    Column("host", Text),
    Column("worker", Text),
    Column("git_revision", Text),
    Column("exit_status", Integer),
    Column("num_records", Integer, nullable=False),  # of the session's journal lines: more of them is a later state
    Column("settings", JSON_OR_NULL),
)
devices = Table(
    "npubench_devices",
    METADATA,
    Column("digest", Text, primary_key=True),
    *(Column(name, Text) for name in KEY_PARTS),
    Column("host", Text),
    Column("fingerprint", JSON_OR_NULL),
)
cases = Table(
    "npubench_cases",
    METADATA,
    Column("session", Text, ForeignKey("npubench_sessions.id", ondelete="CASCADE"), primary_key=True),
    Column("case", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("device", Text, primary_key=True),
    Column("fingerprint", Text, ForeignKey("npubench_devices.digest")),
    Column("hardware", Text, nullable=False),
    Column("verdict", Text, nullable=False),
    Column("reason", Text),
    Column("resumed", Boolean, nullable=False),
    Column("is_partly_disturbed", Boolean, nullable=False),
    Column("duration_s", Double),
    Column("measured_s", Double),
    Column("predicted_s", Double),
    Column("error", Double),
    Column("rest", JSON_OR_NULL),
    Index("npubench_cases_case", "case"),
)
metrics = Table(
    "npubench_metrics",
    METADATA,
    Column("session", Text, primary_key=True),
    Column("case", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("device", Text, primary_key=True),
    Column("metric", Text, primary_key=True),
    Column("unit", Text, nullable=False),
    Column("better", Text, nullable=False),
    Column("value", Double, nullable=False),
    Column("median", Double, nullable=False),
    Column("num_samples", Integer, nullable=False),
    Column("samples", JSON_OR_NULL),
    Column("gate", Text, nullable=False),
    Column("margin", Double),
    Column("processes", JSON_OR_NULL),  # null: one process, which left `samples`
    Column("compared", Text),  # the kind of the metric's own verdict; null: it was not compared
    Column("since", Text),
    Column("alarms_among", Double),
    ForeignKeyConstraint(
        ["session", "case", "digest", "device"],
        [cases.c.session, cases.c["case"], cases.c.digest, cases.c.device],
        ondelete="CASCADE",
    ),
    Index("npubench_metrics_case", "case", "metric"),
)


def prepare(connection: Connection, shown: str) -> None:
    """Create the tables where there are none, in one transaction. Raises HistoryError as `check`."""
    if not _has_version(connection, shown):
        if connection.dialect.name == "postgresql":  # in SQLite the writing transaction excludes other creators
            connection.execute(text("SELECT pg_advisory_xact_lock(:name)"), {"name": CREATING})
        if not inspect(connection).has_table(version.name):
            METADATA.create_all(connection)
            connection.execute(insert(version).values(id=1, version=VERSION))
    check(connection, shown)


def check(connection: Connection, shown: str) -> None:
    """Raises HistoryError where the database holds no history, or one of another schema version."""
    if not _has_version(connection, shown):
        raise HistoryError(
            f"history {shown}: holds no history yet; begin with: npubench history upload JOURNAL --history URL"
        )
    written = connection.execute(select(version.c.version)).scalar()
    if written is None or written < VERSION:
        raise HistoryError(
            f"history {shown}: has schema version {written}; this version needs {VERSION}. Name a new database and "
            "upload the journals again: npubench history upload JOURNAL... --history NEW_URL"
        )
    if written > VERSION:
        raise HistoryError(
            f"history {shown}: has schema version {written}; this version reads {VERSION}. Update: "
            "pip install --upgrade pytest-npubench"
        )


def _has_version(connection: Connection, shown: str) -> bool:
    """Whether the version table is there. Raises HistoryError for an SQLite file that belongs to something else."""
    names = inspect(connection).get_table_names()
    if version.name in names:
        return True
    if ours := sorted(set(names) & set(METADATA.tables)):
        raise HistoryError(
            f"history {shown}: has {ours[0]} but no {version.name}, so its schema is unknown; name another"
        )
    if names and connection.dialect.name == "sqlite":
        raise HistoryError(f"history {shown}: is no history; it holds other tables ({', '.join(names)}); name another")
    return False
