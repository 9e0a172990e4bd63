"""What a night does where history, journal, remote or state folder cannot be used: it is told, and nothing is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_npubench.cli import nightly
from pytest_npubench.cli.main import main
from pytest_npubench.errors import NightlyError
from pytest_npubench.nightly import restore as restoring
from pytest_npubench.nightly import state as state_module
from pytest_npubench.nightly.branch import TOKENS
from pytest_npubench.nightly.night import Night, Step
from pytest_npubench.nightly.restore import restore
from pytest_npubench.nightly.state import NightlyState, StateFolder, default_state_path
from pytest_npubench.store.history import history_sessions
from pytest_npubench.store.journal import read_journal

from .conftest import Nights
from .runner import CASES, Runner, git


@pytest.fixture
def runner(nights: Nights, tmp_path: Path) -> Runner:
    """On the fifth night."""
    return nights.copy(tmp_path)


def test_a_history_that_cannot_be_read_makes_the_night_red_and_is_filled_later(runner: Runner) -> None:
    broken = "this is no database " * 100
    runner.state.history.write_text(broken)
    done = runner.night()
    assert done.status == 1
    assert f"measure: {CASES} unchanged" in done.out
    assert "upload: not in the history: history " in done.out
    assert runner.state.history.read_text() == broken
    runner.state.history.unlink()
    assert runner.call("upload").status == 0
    assert len(history_sessions(str(runner.state.history))) == 5


def test_a_password_of_the_history_is_in_no_output(runner: Runner) -> None:
    runner.call("restore")
    done = runner.call("upload", env={"NPUBENCH_HISTORY": "mysql://ann:s3cret@db/bench"})
    assert done.status == 1
    assert "mysql:// is not known" in done.out
    assert "s3cret" not in done.out + done.err + (runner.out / "night.json").read_text()


READS_ABOVE = """
pid, seen = os.getpid(), []
while pid > 1:
    status = Path(f"/proc/{pid}/status").read_text()
    seen.append(Path(f"/proc/{pid}/environ").read_text())
    pid = int(status.partition("PPid:")[2].split()[0])
Path("seen").write_text("\\n".join(seen))
"""


def test_what_is_measured_finds_no_token_in_a_process_above_it(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUBENCH_TESTS_FRESH", "1")  # what was forked shows the environment that its forebear had
    secrets = {name: f"s3cret-{name}" for name in (*TOKENS, "NPUBENCH_HISTORY")}
    conftest = runner.work / "conftest.py"
    conftest.write_text(f"import os\nfrom pathlib import Path\n{READS_ABOVE}{conftest.read_text()}", encoding="utf-8")
    assert runner.call("restore", "--promote=local").status == 0
    done = runner.call("measure", "--", "--collect-only", "test_profile.py", env={**secrets, "PLANTED": "public"})
    seen = (runner.work / "seen").read_text()
    assert seen.count("PLANTED=public") >= 3, done.out + done.err  # pytest's, its guard's, the night's
    assert "s3cret" not in seen


def test_no_history_where_none_is_asked_for(runner: Runner) -> None:
    runner.state.history.unlink()
    runner.call("restore")
    assert runner.call("upload", "--history=none").status == 0
    assert not runner.state.history.exists()


def test_a_damaged_session_is_left_out_and_the_journal_as_it_was_is_kept(runner: Runner) -> None:
    before = read_journal(runner.state.journal).sessions
    damaged = runner.state.journal.read_bytes().replace(b'"record":"round"', b'"rec":"round"', 1)
    runner.state.journal.write_bytes(damaged)
    done = runner.call("restore")
    assert done.status == 1
    assert "is damaged, 1 session left out: line " in done.out
    (kept,) = runner.state.shelf.iterdir()
    assert kept.read_bytes() == damaged
    after = read_journal(runner.state.journal)
    assert [session.id for session in after.sessions] == [session.id for session in before[1:]]
    assert after.damage == ()
    assert runner.call("restore").status == 0


def test_a_journal_that_cannot_be_read_is_kept_and_a_new_one_begins(runner: Runner) -> None:
    damaged = b"\0" * 1000
    runner.state.journal.write_bytes(damaged)
    done = runner.call("restore")
    assert done.status == 1
    assert "restore: a new journal begins: " in done.out
    (kept,) = runner.state.shelf.iterdir()
    assert kept.read_bytes() == damaged
    assert not runner.state.journal.exists()
    assert runner.call("restore").status == 0


def test_a_remote_that_does_not_answer_leaves_the_baselines_of_the_last_time(runner: Runner) -> None:
    git(runner.work, "remote", "set-url", "origin", str(runner.root / "gone.git"))
    done = runner.call("restore")
    assert done.status == 1
    assert "restore: baselines are those of the last time, since the branch could not be read: branch " in done.out
    assert f"they hold 4 sessions of {CASES} cases" in done.out


def test_baselines_in_the_work_tree_alone_are_named(runner: Runner) -> None:
    (path,) = runner.state.baselines.glob("*/*.json")
    only = runner.work / "baselines" / "fake" / "buckets-00000000.json"
    only.parent.mkdir(parents=True)
    only.write_bytes(path.read_bytes())
    done = runner.call("restore")
    name = "baselines/fake/buckets-00000000.json"
    assert f"restore: not judged against, since only the work tree has it: {name}" in done.out


def test_old_sessions_go_to_the_shelf_but_for_those_that_wait(nights: Nights, tmp_path: Path, monkeypatch) -> None:
    state = StateFolder(path=tmp_path / "state")
    night = Night(name="cpu", work=tmp_path, out=tmp_path / "out", state=state)
    state.path.mkdir()
    state.journal.write_bytes(nights.runner.state.journal.read_bytes())
    first, second, third, fourth = (session.id for session in read_journal(state.journal).sessions)
    monkeypatch.setattr(restoring, "NUM_KEPT_SESSIONS", 1)
    settled = dict.fromkeys((first, third, fourth), "accepted")
    for is_uploaded, kept in ((False, [first, second, third, fourth]), (True, [second, fourth])):
        state.write(NightlyState(owner="abc", settled=settled, is_uploaded=is_uploaded))
        restore(night, None)
        assert [session.id for session in read_journal(state.journal).sessions] == kept
    (shelved,) = state.shelf.iterdir()
    assert [session.id for session in read_journal(shelved).sessions] == [first, third]


def test_a_state_folder_in_use_is_told(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(state_module, "LOCK_TIMEOUT_S", 0.2)
    state = StateFolder(path=tmp_path / "state")
    told = pytest.raises(NightlyError, match="another nightly, or pytest that a killed one left, has it")
    with state.locked(), told, state.locked():
        pass
    with state.locked():  # free again
        pass


def test_a_night_that_is_ended_in_any_step_has_a_summary(tmp_path: Path, monkeypatch) -> None:
    def steps(_arguments, night: Night, *_) -> dict[str, Callable[[], Step]]:
        def begun() -> Step:
            night.begin()
            return night.record(Step(name="restore", outcome="done", lines=("begun",)))

        return {"restore": begun, "promote": lambda: os.kill(os.getpid(), signal.SIGTERM) or begun()}

    monkeypatch.setattr(nightly, "_steps", steps)
    monkeypatch.chdir(tmp_path)
    options = ("--family", "cpu", "--promote", "local", "--state", str(tmp_path / "state"))
    assert main(["nightly", "run", *options]) == 130
    summary = (tmp_path / "npubench-nightly" / "summary.md").read_text(encoding="utf-8")
    assert "| promote | **failed** | did not run, or was killed |" in summary


def test_steps_without_a_night_and_folders_of_others_are_told(runner: Runner) -> None:
    runner.checkout()
    assert "run `npubench nightly restore` first" in runner.call("publish").err
    (runner.work / "mine").mkdir()
    (runner.work / "mine" / "thesis.tex").write_text("years of work")
    done = runner.call("restore", "--output", "mine")
    assert done.status == 1
    assert "is not a night's folder" in done.err
    assert (runner.work / "mine" / "thesis.tex").exists()


def test_what_a_killed_nights_pytest_wrote_after_the_cleaning_is_no_strangers(runner: Runner) -> None:
    runner.checkout()
    left = runner.work / "npubench-nightly"
    left.mkdir()
    (left / "report.html").write_text("<html>")
    assert runner.call("restore").status == 0
    assert not (left / "report.html").exists()


def test_where_the_state_lies(tmp_path: Path) -> None:
    address = "https://github.com/ann/bench.git"
    assert default_state_path({"NPUBENCH_STATE_DIR": "/var/npubench"}, address, "tpu") == Path(
        "/var/npubench/ann-bench/tpu"
    )
    for secret in ("ann:s3cret@", "s3cret@", "ann:s3/cret@"):
        assert default_state_path({"NPUBENCH_STATE_DIR": "/x"}, f"https://{secret}host/r.git", "t") == Path(
            "/x/host-r/t"
        )
    assert default_state_path({"XDG_STATE_HOME": "/home/ann/s"}, "git@github.com:ann/bench.git", "tpu") == Path(
        "/home/ann/s/npubench/ann-bench/tpu"
    )
    assert default_state_path({}, str(tmp_path), "x").parts[-5:-2] == (".local", "state", "npubench")
