"""Both kinds of database: a file, and a PostgreSQL server of Debian's package that is started for the tests."""

import os
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import pytest

TABLES = {
    "sessions": "SELECT id, exit_status FROM npubench_sessions",
    "cases": 'SELECT session, "case", digest, device, verdict FROM npubench_cases',
    "metrics": 'SELECT session, "case", digest, device, metric, value, median, num_samples FROM npubench_metrics',
}


def program(name):
    """The newest of Debian's, or the one on the PATH; None where there is none."""
    found = Path("/usr/lib/postgresql").glob(f"*/bin/{name}")
    installed = [str(path) for path in sorted(found, key=lambda path: float(path.parts[4]))]
    return installed[-1] if installed else shutil.which(name)


def unprivileged():
    """Keywords that make subprocess run as nobody where we are root: PostgreSQL refuses root."""
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


@pytest.fixture(scope="session")
def server():
    """The folder of a running server's socket; it listens on no port. Skips with the reason where none can be run."""
    if not (program("initdb") and program("pg_ctl")):
        pytest.skip("no PostgreSQL server: initdb and pg_ctl are not installed (apt-get install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="npubench-pg-", dir="/tmp"))  # a socket's path has at most 107 bytes
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    data, log = folder / "data", folder / "log"

    def call(*command):
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, **unprivileged())

    try:
        made = call(program("initdb"), "-D", str(data), "-A", "trust", "-U", "npubench", "--no-sync")
        if made.returncode:
            pytest.skip(f"PostgreSQL cannot be set up: {made.stderr.strip()}")
        options = f"-k {folder} -c listen_addresses= -c fsync=off"
        started = call(program("pg_ctl"), "-D", str(data), "-w", "-l", str(log), "-o", options, "start")
        assert started.returncode == 0, log.read_text()
        yield folder
        call(program("pg_ctl"), "-D", str(data), "-m", "immediate", "-t", "20", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres_url(server):
    """A database of its own on the server."""
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(f"host={server} user=npubench dbname=postgres", autocommit=True) as connection:
        number = connection.execute("SELECT count(*) FROM pg_database").fetchone()[0]
        connection.execute(f"CREATE DATABASE bench{number}")
    return f"postgresql://npubench@/bench{number}?host={server}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    return str(tmp_path / "history.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def execute(url, statement):
    """One statement by the plain driver, past the code under test."""
    if not url.startswith("postgresql"):
        connection = sqlite3.connect(url)
        try:
            found = connection.execute(statement).fetchall()
            connection.commit()
            return found
        finally:
            connection.close()
    import psycopg

    with psycopg.connect(url) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def ask():
    return execute


@pytest.fixture
def rows_of():
    """rows_of(url): what stands in the history, in the form of expected_rows; fails on a row that stands twice."""

    def rows_of(url):
        found = {name: execute(url, statement) for name, statement in TABLES.items()}
        answer = {
            "sessions": {row[0]: row[1] for row in found["sessions"]},
            "cases": {row[:4]: row[4] for row in found["cases"]},
            "metrics": {row[:5]: row[5:] for row in found["metrics"]},
        }
        assert {name: len(rows) for name, rows in found.items()} == {name: len(rows) for name, rows in answer.items()}
        return answer

    return rows_of
