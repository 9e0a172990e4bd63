"""What can be wrong with a history: one HistoryError that names it without its password and says what to do."""

import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_journals import expected_rows, write_session

from pytest_npubench.core.secret import masked
from pytest_npubench.errors import HistoryError
from pytest_npubench.store.history import database, history_series, history_sessions, upload_journal
from pytest_npubench.store.history.address import parse_address, shown_address
from pytest_npubench.store.journal import read_journal

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("COMMIT")
connection.close()
"""
UNPRIVILEGED = """
import os, sys, tempfile
from dataclasses import replace
from pathlib import Path
from pytest_npubench.errors import HistoryError
from pytest_npubench.store.history import history_series, upload_journal
from pytest_npubench.store.journal import read_journal
action, url, path = sys.argv[1:]
journal = read_journal(Path(path))
with tempfile.TemporaryDirectory() as folder:  # loads everything while the libraries can still be read
    upload_journal(f"{folder}/history.db", journal)
    history_series(f"{folder}/history.db")
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    print("ok", upload_journal(url, journal, timeout_s=0) if action == "write" else len(history_series(url)))
except HistoryError as error:
    print(error)
"""


@pytest.fixture
def journal(tmp_path):
    path = tmp_path / "journal.jsonl"
    write_session(path, num_cases=1)
    return read_journal(path)


@pytest.fixture
def briefly(monkeypatch):
    """Databases are waited for only so long."""
    monkeypatch.setattr(database, "LOCK_WAIT_S", 0.1)
    monkeypatch.setattr(database, "READ_TIMEOUT_S", 0.3)


def refusal(url, journal, timeout_s=0.3):
    with pytest.raises(HistoryError) as caught:
        upload_journal(url, journal, timeout_s=timeout_s)
    text = str(caught.value)
    assert "\n" not in text
    assert "the journal is kept; repeat with: npubench history upload" in text
    assert str(journal.path) in text
    return text


@pytest.mark.parametrize(
    ("text", "path", "server"),
    [
        ("a/history.db", "a/history.db", None),
        ("h.sqlite", "h.sqlite", None),
        ("sqlite:///a/h.db", "a/h.db", None),
        ("sqlite:////a/h.anything", "/a/h.anything", None),
        ("postgresql://u:p@h/d", None, "postgresql+psycopg://u@h/d"),
        ("postgres://u@h:1/d?sslmode=require", None, "postgresql+psycopg://u@h:1/d?sslmode=require"),
        ("postgresql+psycopg://h/d", None, "postgresql+psycopg://h/d"),
    ],
)
def test_the_forms_of_an_address(text, path, server):
    address = parse_address(text)
    assert (address.path, address.server) == (path and Path(path), server)


@pytest.mark.parametrize(
    "text",
    [
        *("", "history", "history.txt", "sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite:///a.db?x=1"),
        *("sqlite://h/a.db", "mysql://u:secret@h/d", "http://h/d", "://", "postgresql+psycopg2://u:secret@h/d"),
    ],
)
def test_other_addresses_are_refused_with_what_is_allowed(text, journal):
    message = refusal(text, journal)
    assert "want a path ending in .db or .sqlite" in message
    assert "secret" not in message


@pytest.mark.parametrize("text", ["postgresql://u:secret@h:port/d", "postgresql://u:sec/ret@h:1:2x/d"])
def test_a_url_that_cannot_be_parsed_keeps_its_password(text, journal):
    message = refusal(text, journal)
    assert "not a URL" in message
    assert "sec" not in message


STRANGE = [
    *(
        "postgresql:/u:s3cret@h",
        "postgresql:u:s3cret@h.db",
        "host=h password=s3cret",
        "host=h password=s3cret dbname=h.db",
    ),
    *("u:s3cret@h.sqlite", "postgresql://u:s3cret@x@h/d", "postgresql://u:x@s3cret@h/d", "postgresql://u%3As3cret@h/d"),
    *("postgresql://u:s3cret", "postgresql://u:s3cret@h:999999/d", "postgresql://u:s3cret@h:1,g:2/d"),
    *("postgresql://u:s3cret@h/d?pass word=s3cret", "postgresql://u@h/d?sslpassword=s3cret&sslpassword=s3cret"),
    *("mysql+x://u:s3cret@h/d", "http://h/s3cret@d", "sqlite://u:s3cret@h/a.db", "postgresql://u/s3cret@h/d"),
    *("postgresql://u@h/d;password=s3cret", "postgresql://u;password=s3cret@h/d", "h;password=s3cret"),
    *("postgresql://u@h/d?sslmode=require;password=s3cret", "postgresql://h/d?application_name=a%3Bpassword%3Ds3cret"),
    *("postgresql://[s3cret/d", "file:s3cret.db", "postgresql://u:s3cret%zz@h:x/d"),
]


@pytest.mark.parametrize("text", STRANGE)
def test_what_cannot_be_read_is_refused_and_not_repeated(text, journal):
    message = refusal(text, journal)
    assert "want a path ending in .db or .sqlite" in message
    assert "s3cret" not in message
    assert "s3cret" not in shown_address(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ann@host:s3cret@db/d", "postgresql://ann%40host:***@db/d"),
        ("postgresql://ann:s3/c?r#t@db/d", "postgresql://ann:***@db/d"),
        ("postgresql://ann:s3cret%40%2F@db:5432/d?sslmode=require", "postgresql://ann:***@db:5432/d?sslmode=require"),
        ("postgres:///d?host=/run&password=s3cret", "postgresql:///d?host=%2Frun&password=***"),
        ("postgresql://db/d?options=-c%20my.key%3Ds3cret&colour=s3cret", "postgresql://db/d?options=***&colour=***"),
    ],
)
def test_a_secret_stands_apart_from_the_address(text, shown):
    address = parse_address(text)
    assert address.shown == shown
    assert "s3" not in repr(address)
    assert all(secret.reveal() for secret in address.secrets.values())
    assert "s3" not in address.server
    for secret in address.secrets.values():
        for form in (secret.reveal(), quote(secret.reveal(), safe="")):
            assert address.without_secrets(f"no {form} here") == "no *** here"


def test_the_driver_gets_the_secrets_and_its_words_are_masked(journal, monkeypatch):
    psycopg = pytest.importorskip("psycopg")
    given = []

    def connect(*_, **options):
        given.append(options)
        raise psycopg.OperationalError(f'connection to "{options}" failed: {options["password"]}')

    monkeypatch.setattr(psycopg, "connect", connect)
    message = refusal("postgresql://ann@host:s3cret%2F@db/bench?sslpassword=t0p", journal)
    assert given[0]["password"] == "s3cret/"
    assert given[0]["sslpassword"] == "t0p"
    assert given[0]["user"] == "ann@host"
    assert "s3cret" not in message
    assert "t0p" not in message


@given(
    st.text(st.characters(exclude_characters="\n\r", codec="utf-8"), min_size=1), st.sampled_from(["h", "h/d?a=b@c"])
)
def test_no_password_is_ever_shown(password, rest):
    assert masked(f"postgresql://user:{password}@{rest}").startswith("postgresql://user:***@")
    if "&" not in password:
        assert masked(f"postgresql://user@h/d?password={password}&a=b") == "postgresql://user@h/d?password=***&a=b"


def test_locked_by_another_process(tmp_path, journal, start, briefly, rows_of):
    path = tmp_path / "history.db"
    upload_journal(str(path), journal)
    session = write_session(journal.path)
    holder = start(HOLD, path)
    assert holder.stdout.readline() == "held\n"
    try:
        assert "locked by another process all this time" in refusal(str(path), read_journal(journal.path))
    finally:
        assert holder.communicate("go\n", timeout=30)[1] == ""
    upload_journal(str(path), read_journal(journal.path))  # the message's own advice
    assert session in rows_of(str(path))["sessions"]
    assert rows_of(str(path)) == expected_rows(journal.path)


def test_a_lock_that_is_let_go_is_waited_for(tmp_path, journal, start, briefly):
    path = tmp_path / "history.db"
    upload_journal(str(path), journal)
    write_session(journal.path)
    holder = start(HOLD, path)
    assert holder.stdout.readline() == "held\n"
    slept = []

    def let_go(delay_s):
        slept.append(delay_s)
        if len(slept) == 2:
            holder.communicate("go\n", timeout=30)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "time", SimpleNamespace(sleep=let_go, monotonic=time.monotonic))
        assert upload_journal(str(path), read_journal(journal.path)).num_new_sessions == 1
    assert len(slept) == 2


def test_locked_on_the_server(postgres_url, journal, briefly):
    psycopg = pytest.importorskip("psycopg")
    upload_journal(postgres_url, journal)
    write_session(journal.path)
    with psycopg.connect(postgres_url) as other:
        other.execute("LOCK TABLE npubench_sessions IN ACCESS EXCLUSIVE MODE")
        assert "locked by another process all this time" in refusal(postgres_url, read_journal(journal.path))
    assert upload_journal(postgres_url, read_journal(journal.path)).num_new_sessions == 1


@pytest.fixture
def open_folder():
    """A folder that every user may reach, below no folder of ours."""
    with tempfile.TemporaryDirectory(prefix="npubench-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


def as_nobody(action, url, journal):
    done = subprocess.run(
        [sys.executable, "-c", UNPRIVILEGED, action, str(url), str(journal.path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("what", ["file", "folder"])
def test_read_only(what, open_folder, journal):
    path = open_folder / "history.db"
    upload_journal(str(path), journal)
    write_session(journal.path)
    if what == "file":
        open_folder.chmod(0o777)
        path.chmod(0o444)
    else:
        path.chmod(0o444)
        open_folder.chmod(0o555)
    assert "read-only" in as_nobody("write", path, journal)
    assert as_nobody("read", path, journal) == "ok 2\n"


def test_a_folder_that_may_not_be_made(open_folder, journal):
    open_folder.chmod(0o555)
    assert f"Permission denied: {open_folder}/below" in as_nobody("write", open_folder / "below" / "h.db", journal)
    assert "cannot be opened; want a file in a folder" in as_nobody("write", open_folder / "h.db", journal)


def test_a_file_that_is_no_database(tmp_path, journal):
    path = tmp_path / "history.db"
    path.write_text("this is a text of more than a hundred bytes, " * 20)
    before = path.read_bytes()
    assert "is no SQLite database; name another file" in refusal(str(path), journal)
    with pytest.raises(HistoryError, match="is no SQLite database"):
        history_series(str(path))
    assert path.read_bytes() == before


def test_a_damaged_database(tmp_path, journal):
    path = tmp_path / "history.db"
    upload_journal(str(path), journal)
    raw = path.read_bytes()
    path.write_bytes(raw[:4096] + b"\xff" * (len(raw) - 4096))
    with pytest.raises(HistoryError, match="is damaged; move it away and upload the journals into a new one"):
        history_series(str(path))
    write_session(journal.path)
    assert "is damaged" in refusal(str(path), read_journal(journal.path))


def test_a_folder_is_no_file(tmp_path, journal):
    (tmp_path / "history.db").mkdir()
    assert "cannot be opened" in refusal(str(tmp_path / "history.db"), journal)
    (tmp_path / "file").touch()
    assert "File exists" in refusal(str(tmp_path / "file" / "history.db"), journal)


def test_another_schema_version(url, journal, ask):
    upload_journal(url, journal)
    for version, advice in ((2, "upload the journals again"), (4, "pip install --upgrade pytest-npubench")):
        ask(url, f"UPDATE npubench_history SET version = {version}")
        found = refusal(url, journal)
        assert re.search(f"has schema version {version}; this version (needs|reads) 3", found)
        assert advice in found
        for read in (history_series, history_sessions):
            with pytest.raises(HistoryError, match=advice):
                read(url)
    ask(url, "DROP TABLE npubench_history")
    assert "has npubench_cases but no npubench_history" in refusal(url, journal)


def test_nothing_there_to_read(tmp_path, postgres_url):
    with pytest.raises(HistoryError, match="no such file; begin one with: npubench history upload"):
        history_series(str(tmp_path / "history.db"))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(HistoryError, match="holds no history yet; begin with: npubench history upload"):
        history_series(postgres_url)


def test_a_server_that_is_not_there(tmp_path, journal):
    pytest.importorskip("psycopg")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = refusal(f"postgresql://ann:secret@127.0.0.1:{port}/bench", journal)
    assert "cannot be reached" in found
    assert f"postgresql://ann:***@127.0.0.1:{port}/bench" in found
    assert "secret" not in found
    assert "cannot be reached" in refusal(f"postgresql://ann@/bench?host={tmp_path}", journal)


def test_a_server_that_refuses(postgres_url, journal):
    other = re.sub(r"/bench\d+", "/nowhere", postgres_url)
    assert "the server has no such database or user" in refusal(other, journal)
    assert "read-only; name its primary" in refusal(
        f"{postgres_url}&options=-c%20default_transaction_read_only%3Don", journal
    )
    assert "an option that PostgreSQL does not know" in refusal(f"{postgres_url}&colour=red", journal)


@pytest.mark.parametrize(
    ("module", "url", "extra"),
    [("psycopg", "postgresql://u:secret@h/d", "postgres"), ("sqlalchemy", "history.db", "history")],
)
def test_a_library_that_is_not_installed(module, url, extra, journal):
    script = (
        "import sys; from pathlib import Path; sys.modules[sys.argv[1]] = None\n"
        "from pytest_npubench.store.history import upload_journal\n"
        "from pytest_npubench.store.journal import read_journal\n"
        "from pytest_npubench.errors import HistoryError\n"
        "try: upload_journal(sys.argv[2], read_journal(Path(sys.argv[3])))\n"
        "except HistoryError as error: print(error)"
    )
    command = [sys.executable, "-c", script, module, url, str(journal.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{module} is not installed: pip install pytest-npubench[{extra}]" in done.stdout
    assert "secret" not in done.stdout


def test_importing_the_history_imports_no_sqlalchemy():
    script = "import sys, pytest_npubench.store.history; print('sqlalchemy' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False False\n"


def test_sqlite_waits_and_checks_keys(tmp_path, journal):
    path = tmp_path / "history.db"
    upload_journal(str(path), journal)
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()

    def facts(connection):
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("foreign_keys", "busy_timeout")]

    assert database.write(parse_address(str(path)), facts, 1.0) == [1, 5000]
