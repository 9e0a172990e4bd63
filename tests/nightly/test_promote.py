"""Promoting onto a branch that others move too, without a token, with review, and what a person did in between.

No device is needed: a night's journal is that of a real one with its session renamed.
"""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.errors import NightlyError
from pytest_npubench.nightly import accepting
from pytest_npubench.nightly.accepting import accept_waiting
from pytest_npubench.nightly.branch import access, masked
from pytest_npubench.store.accept_run import accept_run
from pytest_npubench.store.baseline_changes import reject
from pytest_npubench.store.journal import Journal, read_journal

from .conftest import Nights
from .runner import BRANCH, CASES, Remote, Runner, git

NO_TOKEN = {"GITHUB_TOKEN": "", "GH_TOKEN": "", "NPUBENCH_GIT_TOKEN": ""}
MOVE_ONCE = """#!/bin/sh
if [ -e moved-meanwhile ]; then
    commit=$(cat moved-meanwhile); rm moved-meanwhile
    env -u GIT_QUARANTINE_PATH git update-ref refs/heads/{branch} $commit
    echo "somebody else was first" >&2
    exit 1
fi
"""
REFUSE = "#!/bin/sh\necho 'no pushing after midnight' >&2\nexit 1\n"


@pytest.fixture
def remote(nights: Nights, tmp_path: Path) -> Remote:
    """One on which nothing was accepted yet."""
    remote = Remote(path=tmp_path / "origin.git")
    git(
        tmp_path,
        "clone",
        "--quiet",
        "--bare",
        "--single-branch",
        "--branch=main",
        str(nights.remote.path),
        "origin.git",
    )
    return remote


@pytest.fixture
def runner(remote: Remote, tmp_path: Path) -> Runner:
    return Runner(remote=remote, root=tmp_path / "one", environment=dict(NO_TOKEN))


@pytest.fixture
def other(remote: Remote, tmp_path: Path) -> Runner:
    return Runner(remote=remote, root=tmp_path / "other", environment=dict(NO_TOKEN))


def hook(remote: Remote, text: str) -> Path:
    path = remote.path / "hooks" / "pre-receive"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def accepted(remote: Remote, folder: Path, branch: str = BRANCH) -> set[tuple[str, ...]]:
    """The sessions of each case on a branch; the order in which two runners came does not matter."""
    found = remote.sessions(folder, branch)
    assert len(found) == CASES
    return {tuple(sorted(sessions)) for sessions in found.values()}


def test_a_branch_that_moved_between_restore_and_promote(
    nights: Nights, runner: Runner, other: Runner, tmp_path
) -> None:
    for one in (runner, other):
        assert one.call("restore").status == 0
    runner.measured(nights.journals[0], "a")
    other.measured(nights.journals[1], "b")
    assert other.call("promote").status == 0
    done = runner.call("promote")
    assert done.status == 0, done.out + done.err
    assert accepted(runner.remote, tmp_path / "tip") == {("a", "b")}
    assert f"a: accepted {CASES} of {CASES} judgeable green cases" in done.out


def test_a_branch_that_moves_while_it_is_pushed(nights: Nights, runner: Runner, other: Runner, tmp_path) -> None:
    runner.measured(nights.journals[0], "first")
    runner.call("restore")
    assert runner.call("promote").status == 0
    before = git(runner.remote.path, "rev-parse", BRANCH)
    other.measured(nights.journals[1], "b")
    other.call("restore")
    assert other.call("promote").status == 0
    (runner.remote.path / "moved-meanwhile").write_text(git(runner.remote.path, "rev-parse", BRANCH))
    git(runner.remote.path, "update-ref", f"refs/heads/{BRANCH}", before)
    hook(runner.remote, MOVE_ONCE.format(branch=BRANCH))
    runner.measured(nights.journals[2], "c")
    done = runner.call("promote")
    assert done.status == 0, done.out + done.err
    assert not (runner.remote.path / "moved-meanwhile").exists()
    assert accepted(runner.remote, tmp_path / "tip") == {("b", "c", "first")}


@pytest.mark.parametrize(
    ("path", "mode", "kind"),
    [
        ("baselines/cpu", "120000", "a link"),
        ("baselines/cpu/.buckets-0.json.tmp", "120000", "a link"),
        ("baselines/.npubench", "120000", "a link"),
        ("baselines/cpu/deep/round", "120000", "a link"),
        ("baselines/cpu/other", "160000", "a submodule"),
        ("baselines", "120000", "a link"),
        ("baselines", "160000", "a submodule"),
        ("baselines", "100644", "a file"),
        ("baselines/cpu/.gitattributes", "100644", "a list of attributes, by which git changes bytes"),
    ],
)
def test_what_is_no_plain_file_on_the_branch_is_refused(
    path: str, mode: str, kind: str, nights: Nights, runner: Runner, tmp_path: Path
) -> None:
    """Nothing outside is touched, and nothing is said to be accepted: the remote would have to have it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    runner.measured(nights.journals[0], "a")
    assert runner.call("restore").status == 0
    link = tmp_path / "link"
    link.write_text(str(outside), encoding="utf-8")
    is_commit = mode == "160000"
    target = git(runner.work, "rev-parse", "HEAD") if is_commit else git(runner.work, "hash-object", "-w", str(link))
    git(runner.work, "update-index", "--add", "--cacheinfo", f"{mode},{target},{path}")
    commit = git(runner.work, "commit-tree", git(runner.work, "write-tree"), "-m", "planted")
    git(runner.work, "push", "--quiet", "origin", f"{commit}:refs/heads/{BRANCH}")
    git(runner.work, "reset", "--quiet", "--hard")
    for step in ("promote", "restore"):
        done = runner.call(step)
        assert done.status == 1, done.out + done.err
        assert f"branch {BRANCH}, {path}: is {kind}; want plain files in folders" in done.out
        assert "accepted 3" not in done.out
    assert list(outside.iterdir()) == []
    assert git(runner.remote.path, "rev-parse", BRANCH) == commit
    assert not runner.state.read().settled


def test_attributes_of_the_work_tree_change_no_byte(nights: Nights, runner: Runner, tmp_path: Path) -> None:
    """Neither those of the checked-out branch, nor those of the machine, nor those beside its baselines."""
    (tmp_path / "attributes").write_text("*.json text eol=crlf\n")
    git(runner.work, "config", "core.attributesFile", str(tmp_path / "attributes"))
    (runner.work / "baselines").mkdir()
    for folder in (runner.work, runner.work / "baselines"):
        (folder / ".gitattributes").write_text("*.json text eol=crlf working-tree-encoding=UTF-16\n")
    runner.measured(nights.journals[0], "a")
    for step in ("restore", "promote", "restore"):
        assert runner.call(step).status == 0
    assert accepted(runner.remote, tmp_path / "tip") == {("a",)}
    files = [path for path in (tmp_path / "tip" / "baselines").rglob("*") if path.is_file()]
    for path in files:
        assert b"\r" not in path.read_bytes()
        assert (runner.out / path.relative_to(tmp_path / "tip")).read_bytes() == path.read_bytes()


def test_links_of_a_work_tree_do_not_begin_a_branch(nights: Nights, runner: Runner, tmp_path: Path) -> None:
    runner.measured(nights.journals[0], "a")
    (runner.work / "baselines").mkdir()
    (runner.work / "baselines" / "openvino").symlink_to(tmp_path)
    before = sorted(tmp_path.iterdir())
    for step in ("restore", "promote"):
        done = runner.call(step)
        assert done.status == 1, done.out + done.err
        assert "openvino: is a link; want plain files in folders" in done.out
        assert "accepted 3" not in done.out
    assert sorted(tmp_path.iterdir()) == before
    assert git(runner.remote.path, "for-each-ref", f"refs/heads/{BRANCH}") == ""


def test_runners_that_promote_at_once_on_a_branch_that_is_not_there_yet(
    nights: Nights, runner: Runner, other: Runner, tmp_path
) -> None:
    for one, name in ((runner, "a"), (other, "b")):
        one.measured(nights.journals[0], name)
        assert one.call("restore").status == 0
    started = [one.start("promote") for one in (runner, other)]
    for process in started:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
    assert accepted(runner.remote, tmp_path / "tip") == {("a", "b")}


def test_a_remote_that_refuses_loses_nothing(nights: Nights, runner: Runner, tmp_path) -> None:
    refusing = hook(runner.remote, REFUSE)
    runner.measured(nights.journals[0], "a")
    runner.call("restore")
    done = runner.call("promote")
    assert done.status == 1
    assert "promote: not promoted, to be tried again next night: git push" in done.out
    assert "no pushing after midnight" in done.out
    refusing.unlink()
    runner.measured(nights.journals[1], "b")
    assert runner.call("promote").status == 0
    assert accepted(runner.remote, tmp_path / "tip") == {("a", "b")}
    done = runner.call("promote")
    assert "promote: every session was settled before" in done.out


class Answering(http.server.BaseHTTPRequestHandler):
    """Asks git for a password, and opens pull requests."""

    requests: list[tuple[str, str, Any]]

    def do_GET(self) -> None:
        self.requests.append(("GET", self.path, None))
        if self.path.startswith("/repos/"):
            made = [body for verb, _, body in self.requests if verb == "POST"]
            self._answer(200, [{"html_url": "https://example.org/pull/7"}] if made else [])
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append(("POST", self.headers["Authorization"], body))
        self._answer(201, {"html_url": "https://example.org/pull/7"})

    def _answer(self, status: int, content: object) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(content).encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def server() -> Iterator[http.server.HTTPServer]:
    Answering.requests = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_ci_without_a_token_is_told_and_loses_nothing(nights: Nights, runner: Runner, server, tmp_path) -> None:
    runner.measured(nights.journals[0], "a")
    runner.call("restore")
    address = git(runner.work, "remote", "get-url", "origin")
    git(runner.work, "remote", "set-url", "origin", f"http://ann:secret@127.0.0.1:{server.server_port}/bench.git")
    done = runner.call("promote")
    assert done.status == 1
    assert "no access: set one of NPUBENCH_GIT_TOKEN, GITHUB_TOKEN, GH_TOKEN" in done.out
    assert "secret" not in done.out + done.err
    git(runner.work, "remote", "set-url", "origin", address)
    assert runner.call("promote").status == 0
    assert accepted(runner.remote, tmp_path / "tip") == {("a",)}


def test_a_token_reaches_git_by_its_environment_alone(tmp_path: Path) -> None:
    """git itself says which headers it would send, with a checkout's own one in the repository's configuration."""
    import os
    import subprocess

    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "http.https://github.com/.extraheader", "AUTHORIZATION: basic b2xk")
    made = access("https://github.com/ann/bench.git", {"GITHUB_TOKEN": "s3cret"})
    command = ["git", "-C", str(tmp_path), "config", "--get-all", "http.https://github.com/.extraheader"]
    done = subprocess.run(command, env={**os.environ, **made}, capture_output=True, text=True, check=True)
    values = done.stdout.split("\n")[:-1]
    assert values[values.index("") + 1 :] == ["AUTHORIZATION: basic eC1hY2Nlc3MtdG9rZW46czNjcmV0"]
    assert access("git@github.com:ann/bench.git", {"GITHUB_TOKEN": "s3cret"}) == {}
    assert access("http://github.com/ann/bench.git", {"GITHUB_TOKEN": "s3cret"}) == {}
    assert access("https://github.com/ann/bench.git", {}) == {}
    assert masked("fatal: https://ann:s3cret@host/x") == "fatal: https://***@host/x"


def test_review_before_it_counts(nights: Nights, runner: Runner, server, tmp_path) -> None:
    proposed = ("--promote=pull-request", "--branch=main")
    main = git(runner.remote.path, "rev-parse", "main")
    runner.measured(nights.journals[0], "a")
    runner.call("restore", *proposed)
    done = runner.call("promote", *proposed)
    assert done.status == 0, done.out + done.err
    assert "no pull request: GITHUB_REPOSITORY is not set; the branch npubench/nightly-openvino-" in done.out
    assert runner.steps()["promote"]["outcome"] == "warning"
    assert git(runner.remote.path, "rev-parse", "main") == main
    (topic,) = [
        name
        for name in git(runner.remote.path, "for-each-ref", "--format=%(refname:short)").split()
        if name.startswith("npubench/")
    ]
    assert accepted(runner.remote, tmp_path / "one-night", topic) == {("a",)}
    runner.measured(nights.journals[1], "b")
    github = {
        "GITHUB_REPOSITORY": "ann/bench",
        "GITHUB_TOKEN": "s3cret",
        "GITHUB_API_URL": f"http://127.0.0.1:{server.server_port}",
    }
    for _ in range(2):
        done = runner.call("promote", *proposed, env=github)
        assert "promote: pull request https://example.org/pull/7" in done.out
    ((_, authorization, asked),) = [request for request in Answering.requests if request[0] == "POST"]
    assert authorization == "Bearer s3cret"
    assert (asked["head"], asked["base"]) == (topic, "main")
    assert accepted(runner.remote, tmp_path / "two-nights", topic) == {("a", "b")}
    git(runner.remote.path, "update-ref", "refs/heads/main", topic)  # a person merged it
    done = runner.call("promote", *proposed)
    assert (runner.state.read().settled.keys(), done.status) == ({"a", "b"}, 0)
    assert git(runner.remote.path, "show", "main:pytest.ini") == "[pytest]"  # the suite is where it was


def test_a_branch_begins_with_the_baselines_of_the_work_tree(nights: Nights, runner: Runner, tmp_path) -> None:
    seed = tmp_path / "seed"
    git(tmp_path, "clone", "--quiet", str(runner.remote.path), "seed")
    accept_run(*_run(nights.journals[0]), seed / "baselines")
    (seed / "baselines" / "published").mkdir()
    (seed / "baselines" / "published" / "figures.json").write_text("{}")
    git(seed, "add", "--all", ":!baselines/.npubench")
    git(seed, "commit", "--quiet", "-m", "accepted by hand")
    git(seed, "push", "--quiet", "origin", "main")
    runner.checkout()
    assert "they hold 1 session of 3 cases" in runner.call("restore").out
    runner.measured(nights.journals[1], "b")
    assert runner.call("promote").status == 0
    (first,) = read_journal(nights.journals[0]).sessions
    assert accepted(runner.remote, tmp_path / "tip") == {tuple(sorted((first.id, "b")))}
    assert not (tmp_path / "tip" / "baselines" / "published").exists()


def _run(path: Path) -> Any:
    journal = read_journal(path)
    return journal, journal.sessions


def test_the_state_folder_alone_keeps_baselines_where_asked(nights: Nights, runner: Runner) -> None:
    runner.measured(nights.journals[0], "a")
    assert runner.call("restore", "--promote=local").status == 0
    assert runner.call("promote", "--promote=local").status == 0
    runner.checkout()
    assert "they hold 1 session of 3 cases" in runner.call("restore", "--promote=local").out
    assert git(runner.remote.path, "for-each-ref", "--format=%(refname:short)") == "main"


def test_a_session_that_a_person_rejected_stays_out(nights: Nights, runner: Runner, tmp_path) -> None:
    runner.measured(nights.journals[0], "a")
    runner.measured(nights.journals[1], "b")
    runner.call("restore")
    assert runner.call("promote").status == 0
    git(tmp_path, "clone", "--quiet", f"--branch={BRANCH}", str(runner.remote.path), "person")
    reject(tmp_path / "person" / "baselines", "a", reason="the room was at 40 degrees")
    git(tmp_path / "person", "commit", "--quiet", "--all", "-m", "reject a")
    git(tmp_path / "person", "push", "--quiet", "origin", BRANCH)
    (runner.state.path / "state.json").unlink()  # a runner that was set up anew
    done = runner.call("promote")
    assert done.status == 0, done.out + done.err
    assert "was rejected on" in done.out
    assert accepted(runner.remote, tmp_path / "tip") == {("b",)}
    assert runner.state.read().settled.keys() == {"a", "b"}


def test_a_damaged_branch_is_told_and_loses_nothing(nights: Nights, runner: Runner, tmp_path) -> None:
    runner.measured(nights.journals[0], "a")
    runner.call("restore")
    assert runner.call("promote").status == 0
    whole = git(runner.remote.path, "rev-parse", BRANCH)
    git(tmp_path, "clone", "--quiet", f"--branch={BRANCH}", str(runner.remote.path), "person")
    (path,) = (tmp_path / "person" / "baselines").glob("*/*.json")
    path.write_text("<<<<<<< ours\n" + path.read_text())
    git(tmp_path / "person", "commit", "--quiet", "--all", "-m", "a merge gone wrong")
    git(tmp_path / "person", "push", "--quiet", "origin", BRANCH)
    runner.measured(nights.journals[1], "b")
    done = runner.call("restore")
    assert done.status == 1
    assert "restore: baselines cannot be used, so nothing is judged tonight: baseline " in done.out
    assert "line 1 column 1" in done.out
    done = runner.call("promote")
    assert done.status == 1
    assert "b: not accepted, to be tried again: baseline " in done.out
    git(runner.remote.path, "update-ref", f"refs/heads/{BRANCH}", whole)
    assert runner.call("promote").status == 0
    assert accepted(runner.remote, tmp_path / "tip") == {("a", "b")}


def test_a_case_that_gets_lost_on_the_way_is_an_error(nights: Nights, tmp_path: Path, monkeypatch) -> None:
    """Whatever loses it: here acceptance forgets the case of one bucket without a word."""

    def forgetful(journal: Journal, run: Any, directory: Path) -> Any:
        (session,) = run
        records = tuple(record for record in session.records if "bucket32" not in record.get("case", ""))
        (kept,) = sessions = (replace(session, records=records),)
        return accept_run(replace(journal, sessions=sessions), (kept,), directory)

    journal = read_journal(nights.journals[0])
    (one,) = accept_waiting(journal, (), tmp_path / "whole")
    assert (one.num_judgeable, one.num_accepted, one.lost) == (CASES, CASES, ())
    monkeypatch.setattr(accepting, "accept_run", forgetful)
    (one,) = accept_waiting(journal, (), tmp_path / "forgetful")
    assert one.lost == ("buckets/profile/fake-mini-llama-b2-bucket32",)
    assert f"accepted 2 of {CASES} judgeable green cases; lost: buckets/profile/fake-mini" in one.said


def test_a_state_of_another_version_is_told(runner: Runner) -> None:
    runner.state.path.mkdir()
    (runner.state.path / "state.json").write_text('{"format": "npubench-nightly-state", "version": 9}')
    with pytest.raises(NightlyError, match="written by another version"):
        runner.state.read()
