"""Nights of a runner from a bare remote to a verdict, with the work tree cleaned between them; each step really run.

Three nights build what the fourth is judged by. What is in the journals is counted against what is on the branch.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from plugin.project import wait_for

from pytest_npubench.cli.main import main
from pytest_npubench.nightly import state as state_module
from pytest_npubench.store.history import history_sessions
from pytest_npubench.store.journal import read_journal

from .conftest import Nights
from .runner import CASES, SECRETS, SELECT

SLOW = {"FAKE_FACTOR": "1.1"}


def test_three_nights_build_what_the_fourth_is_judged_by(nights: Nights) -> None:
    assert [one.status for one in nights.done] == [1, 1, 1, 0], nights.done[3]
    for number, one in enumerate(nights.done[:3]):
        assert f"0 of {CASES} cases were compared with a baseline, want 90%; {CASES} of {CASES} no-baseline" in one.out
        assert f"{number} accepted session" in one.out
    assert f"measure: {CASES} unchanged; {CASES} of {CASES} compared with a baseline" in nights.done[3].out


def test_what_was_measured_is_on_the_branch_session_by_session(nights: Nights, tmp_path: Path) -> None:
    measured: dict[str, list[str]] = {}
    for path in nights.journals:  # each is its own night's alone
        (session,) = read_journal(path).sessions
        for record in session.records:
            if record["record"] == "case":
                measured.setdefault(record["case"], []).append(session.id)
    assert len(measured) == CASES
    assert {len(sessions) for sessions in measured.values()} == {4}
    assert nights.remote.sessions(tmp_path / "tip") == measured
    assert len(read_journal(nights.runner.state.journal).sessions) == 4
    assert len(history_sessions(str(nights.runner.state.history))) == 4


def test_the_work_tree_stays_as_it_was_checked_out(nights: Nights) -> None:
    revisions = {
        session.header["host"]["git_revision"] for session in read_journal(nights.runner.state.journal).sessions
    }
    assert len(revisions) == 1
    assert "dirty" not in revisions.pop()


def test_a_slow_night_is_red_named_and_keeps_the_accepted_ones(nights: Nights, tmp_path: Path) -> None:
    runner = nights.copy(tmp_path)
    outputs = {name: str(tmp_path / name) for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    before = nights.remote.sessions(tmp_path / "before")
    done = runner.night(env={**SLOW, **SECRETS, **outputs, "GITHUB_ACTIONS": "true"})
    assert done.status == 1
    assert f"{CASES} regressed" in done.out
    name = "fake-mini-llama-b2-bucket32"
    assert f"::error file=test_profile.py,title={name}::regressed: " in done.out
    summary = (tmp_path / "GITHUB_STEP_SUMMARY").read_text(encoding="utf-8")
    assert summary == (runner.out / "summary.md").read_text(encoding="utf-8")
    assert summary.startswith("## Nightly openvino: red")
    assert f"| `{name}` | regressed | " in summary
    assert "green=false" in (tmp_path / "GITHUB_OUTPUT").read_text(encoding="utf-8").splitlines()
    assert runner.remote.sessions(tmp_path / "after") == before
    assert_site_has_the_slow_night(runner.out / "site", len(nights.journals))
    again = runner.night()
    assert again.status == 0, again.out + again.err
    assert {len(sessions) for sessions in runner.remote.sessions(tmp_path / "later").values()} == {5}


def assert_site_has_the_slow_night(site: Path, num_before: int) -> None:
    """Every case is red on the first page, with the night since when, and the accepted nights stand in its trend."""
    first = (site / "index.html").read_text(encoding="utf-8")
    assert f"{CASES} regressed of {CASES} cases on 1 device" in first
    assert first.count("<td>gate: regressed</td>") >= CASES
    pages = sorted((site / "cases").iterdir())
    assert len(pages) == CASES
    for page in pages:
        data = re.findall(r'id="data">(.*?)</script>', page.read_text(encoding="utf-8"), re.DOTALL)
        (group,) = json.loads(data[0])
        assert len(group["nights"]) == num_before + 1
        red = [series for series in group["series"] if series["said"].endswith("r")]
        assert red
        for series in red:
            assert [change[0] for change in series["changes"]] == [num_before]
            assert series["accepted"] == [list(range(num_before))]


def test_a_night_in_half_the_time_waits_for_a_person(nights: Nights, tmp_path: Path, capsys) -> None:
    runner = nights.copy(tmp_path)
    before = nights.remote.sessions(tmp_path / "before")
    done = runner.night(env={"FAKE_FACTOR": "0.5"})
    assert done.status == 0, done.out + done.err
    assert f"{CASES} improved" in done.out
    assert runner.remote.sessions(tmp_path / "after") == before
    assert "as in earlier runs, with what they compiled" in (runner.out / "pytest.log").read_text(encoding="utf-8")
    assert "smallest slowdown that this session would have found: buckets " in done.out
    summary = (runner.out / "summary.md").read_text(encoding="utf-8")
    assert f"| promote | warning | {CASES} cases wait for a person; " in summary
    assert summary.count(" waits for a person: ttft\\_s is 50 % better, where accepted sessions differ by ") == CASES
    (journal, baselines) = (str(runner.out / "journal.jsonl"), str(runner.state.baselines))
    named = ("--improved", "*bucket32", "--reason", "a fused kernel")
    assert main(["baseline", "accept", journal, "--baselines", baselines, *named]) == 0
    said = capsys.readouterr().out
    assert f"accepted 1 of {CASES} cases into " in said
    assert said.count("waits for a person: ") == CASES - 1


def test_a_new_driver_that_makes_all_incomparable_is_not_green(nights: Nights, tmp_path: Path) -> None:
    runner = nights.copy(tmp_path)
    done = runner.night(env={"FAKE_DRIVER": "fake driver 2"})
    assert done.status == 1
    assert f"0 of {CASES} cases were compared with a baseline" in done.out
    assert (
        f"{CASES} of {CASES} incomparable: accepted under another key: driver fake driver 1 -> fake driver 2"
        in done.out
    )


def test_a_killed_night_leaves_the_next_one_whole(nights: Nights, tmp_path: Path, monkeypatch) -> None:
    """The nightly alone is killed: its pytest, interrupted, ends with it, and until then no other night begins."""
    runner = nights.copy(tmp_path)
    runner.checkout()
    process = runner.start("run", "--", *SELECT, env={"FAKE_SLEEP_S": "0.05"}, start_new_session=True)
    held = runner.state.journal.read_bytes().count(b'"record":"round"')
    wait_for(lambda: runner.state.journal.read_bytes().count(b'"record":"round"') > held, process)
    process.kill()
    process.wait()
    monkeypatch.setattr(state_module, "LOCK_TIMEOUT_S", 60.0)
    with runner.state.locked():
        sessions = read_journal(runner.state.journal).sessions
    process.communicate()
    assert len(sessions) == 5
    assert sessions[4].end is not None
    assert sessions[4].end["exit_status"] == 2
    done = runner.night()
    assert done.status == 0, done.out + done.err
    killed = read_journal(runner.state.journal).sessions[4].id
    assert f"restore: not settled by an earlier night: {killed}" in done.out
    assert {len(sessions) for sessions in runner.remote.sessions(tmp_path / "tip").values()} == {5}
    assert killed in json.loads((runner.state.path / "state.json").read_text())["settled"]


def test_a_night_interrupted_by_the_runner_ends_its_pytest(nights: Nights, tmp_path: Path) -> None:
    runner = nights.copy(tmp_path)
    runner.checkout()
    process = runner.start("run", "--", *SELECT, env={"FAKE_SLEEP_S": "0.05"})
    held = runner.state.journal.read_bytes().count(b'"record":"round"')
    wait_for(lambda: runner.state.journal.read_bytes().count(b'"record":"round"') > held, process)
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 130
    summary = (runner.out / "summary.md").read_text(encoding="utf-8")
    assert "exit status 2: pytest was interrupted: the nightly was told to end" in summary
    assert "| promote | **failed** | did not run, or was killed |" in summary
    last = read_journal(runner.state.journal).sessions[-1]
    assert last.end is not None
    assert last.end["exit_status"] == 2
