"""--npubench-history: what was measured is uploaded at the end of a run, which is not green where that fails."""

import shlex
import sqlite3

import pytest

from pytest_npubench.cli.main import main
from pytest_npubench.store.history import history_sessions

from .project import make_project

SELECT = ("-k", "fake and profile and bucket16")
SECRETS = {
    "password": "pw-4Xb9",
    "sslpassword": "ssl-4Xb9",
    "options": "opt-4Xb9",
    "PGPASSWORD": "env-4Xb9",
    "OPENAI_API_KEY": "sk-4Xb9",
    "GH_TOKEN": "ghp-4Xb9",
}
SERVER = "127.0.0.1:1/bench?connect_timeout=2&sslpassword={sslpassword}&options=-c%20my.key%3D{options}".format(
    **SECRETS
)
URL = f"postgresql://ann@host:{SECRETS['password']}@{SERVER}"
SHOWN = "postgresql://ann%40host:***@127.0.0.1:1/bench?connect_timeout=2&sslpassword=***&options=***"
ARTIFACTS = ("--junit-xml=junit.xml", "--benchmark-json=benchmark.json", "--npubench-report=report.html", "-v")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A run whose history's server is not there."""
    project = make_project(tmp_path_factory.mktemp("measured"))
    project.fake()
    given = ("--npubench-history", URL, "-o", f"npubench_history={URL}")
    return project, project.run(*SELECT, *given, *ARTIFACTS, "-W", "error", env=SECRETS)


def note(result: pytest.RunResult) -> str:
    (line,) = (line for line in result.outlines if line.startswith(("error: history", "history: ")))
    return line


def repeated(line: str) -> list[str]:
    """The arguments of the command that a note says to repeat the upload with."""
    words = shlex.split(line.partition("; the journal is kept; repeat with: ")[2])
    assert words[0] == "npubench"
    return words[1:]


def test_a_server_that_is_not_there_is_told_without_the_password(measured):
    project, result = measured
    assert result.ret == 1, result.stdout.str()
    assert note(result).startswith(f"error: history {SHOWN}: ")
    assert repeated(note(result))[:2] == ["history", "upload"]
    assert repeated(note(result))[-1] == SHOWN
    assert project.journal().sessions[-1].header["settings"]["arguments"].count(SHOWN) == 1
    assert project.records("end")[0]["exit_status"] == 0


def leaks(project) -> list[str]:
    """The files that hold a secret, or a part of one that tells it."""
    files = [path for path in project.root.rglob("*") if path.is_file()]
    assert {"junit.xml", "benchmark.json", "report.html", "journal.jsonl"} <= {path.name for path in files}
    return [str(path) for path in files if b"4Xb9" in path.read_bytes()]


def test_no_artifact_holds_a_secret(measured):
    project, result = measured
    assert "4Xb9" not in result.stdout.str() + result.stderr.str()
    assert leaks(project) == []


def test_a_run_is_uploaded_with_those_before_it(measured, tmp_path):
    project = measured[0].copy(tmp_path / "project")
    result = project.run(*SELECT, "--npubench-history", "history.db")
    assert result.ret == 0
    assert note(result).startswith("history: 2 sessions new")
    rows = history_sessions(str(project.root / "history.db"))
    assert {row.session for row in rows} == {session.id for session in project.journal().sessions}
    assert [dict(row.verdicts) for row in rows] == [{"no-baseline": 1}] * 2
    assert [row.exit_status for row in rows] == [0, 0]
    assert leaks(project) == []


def test_a_database_in_use_is_told(measured, tmp_path):
    project = measured[0].copy(tmp_path / "project")
    project.in_front("from pytest_npubench.store.history import database\n\ndatabase.LOCK_WAIT_S = 0.1\n")
    with sqlite3.connect(project.root / "history.db") as other:
        other.execute("CREATE TABLE others (id INTEGER)")
        other.commit()
        other.execute("BEGIN EXCLUSIVE")
        result = project.run(*SELECT, "--npubench-resume", "--npubench-history", "history.db")
    other.close()
    assert result.ret == 1, result.stdout.str()
    assert note(result).startswith("error: history history.db: ")
    assert "locked" in note(result)


def test_a_broken_file_is_told_and_left_alone(measured, tmp_path, monkeypatch):
    project = measured[0].copy(tmp_path / "project")
    path = project.write("history.db", "this is no database " * 100)
    result = project.run(*SELECT, "--npubench-resume", "-o", "npubench_history=history.db")
    assert result.ret == 1, result.stdout.str()
    assert note(result).startswith("error: history history.db: ")
    assert path.read_text() == "this is no database " * 100
    assert len(project.cases()) == 1
    path.unlink()
    monkeypatch.chdir(project.root)
    assert main(repeated(note(result))) == 0
    assert len(history_sessions(str(path))) == 2
