"""npubench baseline: what each action prints and changes, and its one line where it cannot."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reports.journals import make_fingerprint, open_journal

from pytest_npubench.cli.baseline_show import spread
from pytest_npubench.store.accepted_session import KeptSamples

from .conftest import Answer

Run = Callable[..., Answer]
CASE, OTHER, NEW = (f"buckets/profile/{name}" for name in ("tiny-bucket128", "tiny-bucket256", "small-bucket128"))


def write_run(path: Path, value: float, *, cases: tuple[str, ...] = (CASE, OTHER), kind: str = "passed") -> str:
    """A green run of cases that take `value` milliseconds; returns its session."""
    with open_journal(path) as journal:
        digest = journal.device(make_fingerprint())
        for case in cases:
            journal.append(
                {
                    "record": "case",
                    "case": case,
                    "id": case.split("/")[2],
                    "hardware": "h200",
                    "digest": f"digest of {case}",
                    "device": "cuda:0",
                    "fingerprint": digest,
                    "verdict": {"kind": kind, "reason": "so it is"},
                    "metrics": {
                        "tbt_s": {"unit": "s", "value": value, "better": "lower", "samples": [value * 1e-3] * 3}
                    },
                }
            )
            journal.append({"record": "outcome", "case": case, "device": "cuda:0", "outcome": "passed"})
        journal.append({"record": "end", "exit_status": 0, "counts": {}})
        return journal.session


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory, so that the default directory of the baselines is used."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def accepted(work: Path, call: Run) -> list[str]:
    """Seven accepted sessions of 1 to 7 ms."""
    sessions = []
    for value in range(1, 8):
        sessions.append(write_run(work / "journal.jsonl", value))
        assert call("baseline", "accept", "journal.jsonl").status == 0
    return sessions


def shown(call: Run, case: str = CASE) -> list[dict[str, Any]]:
    (key,) = call("baseline", "show", case, "--json").json["keys"]
    sessions: list[dict[str, Any]] = key["metrics"]["tbt_s"]["sessions"]
    return sessions


def test_what_show_says_to_type_fills_the_folder_that_runs_read(
    work: Path, call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = '[tool.pytest.ini_options]\n[tool.npubench]\nbaselines = "kept"\n'
    (work / "pyproject.toml").write_text(settings, encoding="utf-8")
    (work / "below").mkdir()
    (work / ".npubench").mkdir()
    write_run(work / ".npubench" / "journal.jsonl", 1.0, kind="no-baseline")
    monkeypatch.chdir(work / "below")
    (line,) = [line for line in call("show").out.splitlines() if " accept " in line]
    _, *words = shlex.split(line, comments=True)
    assert words == ["baseline", "accept", "../.npubench/journal.jsonl"]
    assert call(*words).out.startswith(f"accepted 2 cases into {Path('..', 'kept')}")
    assert call("baseline", "list").out == call("baseline", "list", "--baselines", work / "kept").out


def test_accept_says_what_and_where(work: Path, call: Run) -> None:
    session = write_run(work / "journal.jsonl", 1.0)
    answer = call("baseline", "accept", "journal.jsonl")
    (path,) = work.glob("baselines/*/*.json")
    assert answer.out == f"accepted 2 cases into {path.relative_to(work)}\nsession {session}\n"
    assert call("baseline", "accept", "journal.jsonl").out.startswith("accepted 2 cases into files that held them")
    write_run(work / "journal.jsonl", 2.0)
    answer = call("baseline", "accept", "journal.jsonl", "--session", session, "--baselines", "elsewhere")
    assert answer.out.startswith(f"accepted 2 cases into elsewhere/h200/{path.name}\nsession {session}")


def test_accept_refuses_with_the_reason(work: Path, call: Run) -> None:
    assert "No such file" in call("baseline", "accept", "none.jsonl").error
    session = write_run(work / "journal.jsonl", 1.0, kind="invalid")
    assert f"{CASE} is invalid (so it is)" in call("baseline", "accept", "journal.jsonl").error
    assert f"sessions with cases: {session}" in call("baseline", "accept", "journal.jsonl", "--session", "x").error
    assert not (work / "baselines").exists()


@pytest.mark.usefixtures("accepted")
def test_list_says_what_there_is(work: Path, call: Run) -> None:
    (path,) = work.glob("baselines/*/*.json")
    header, row = call("baseline", "list").out.splitlines()
    assert header.split() == ["HARDWARE", "SUITE", "KEY", "CASES", "SESSIONS", "OLDEST", "NEWEST", "ANCHOR", "STACK"]
    assert row.split()[:5] == ["h200", "buckets", path.stem.split("-")[1], "2", "7"]
    assert row.endswith("NVIDIA H200, H200 SXM 141 GB, driver 570.86, jax 0.10.2")
    (item,) = call("baseline", "list", "--json").json["files"]
    assert item["oldest_at"] == item["anchor_at"] <= item["newest_at"]
    assert (item["num_cases"], item["num_sessions"], item["rejected"]) == (2, 7, [])


def test_list_of_nothing(work: Path, call: Run) -> None:
    assert "baselines: No such file or directory" in call("baseline", "list").error
    (work / "baselines").mkdir()
    assert call("baseline", "list").out == "nothing was accepted yet\n"
    found = call("baseline", "list", "--json").json
    assert found == {"format": "npubench-baselines", "version": 1, "files": [], "renamed": {}}
    (work / "baselines" / "h200").mkdir()
    (work / "baselines" / "h200" / "buckets-00000000.json").write_text("{")
    assert "buckets-00000000.json line 1 column 2" in call("baseline", "list").error


def test_show_has_each_session_with_its_change(accepted: list[str], call: Run) -> None:
    rows = shown(call)
    assert [row["session"] for row in rows] == accepted
    assert [row["anchor"] for row in rows] == [True] * 7
    assert [row["median"] for row in rows] == pytest.approx([value * 1e-3 for value in range(1, 8)])
    # the anchor of 1 to 7 ms has the median 4 ms
    assert [row["change"] for row in rows] == pytest.approx([value / 4 - 1 for value in range(1, 8)])
    text = call("baseline", "show", "tiny-bucket128").out
    assert "tbt_s  ▁▂▃▅▆▇█  1 ms to 7 ms" in text
    last = text.splitlines()[-1].split()
    assert last[0] == accepted[-1]
    assert last[2:] == ["0123456789ab", "7", "ms", "0.0", "%", "+75.0", "%", "anchor"]


def test_show_of_what_is_not_there(accepted: list[str], work: Path, call: Run) -> None:
    assert f"cases like it: {CASE}, {OTHER}" in call("baseline", "show", "tiny").error
    assert "no session was accepted for 'huge'; there are 2 cases" in call("baseline", "show", "huge").error
    write_run(work / "journal.jsonl", 1.0, cases=("buckets/steps/tiny-bucket128",))
    assert call("baseline", "accept", "journal.jsonl").status == 0
    assert f"may be {CASE} or buckets/steps/tiny-bucket128" in call("baseline", "show", "tiny-bucket128").error


def test_reject_and_what_comes_after(accepted: list[str], work: Path, call: Run) -> None:
    out = call("baseline", "reject", accepted[1], "--reason", "hot room").out
    assert out.startswith(f"rejected {accepted[1]}: 2 cases in baselines/h200/")
    assert [row["session"] for row in shown(call)] == [accepted[0], *accepted[2:]]
    assert f"rejected  {accepted[1]} on " in call("baseline", "show", CASE).out
    assert call("baseline", "reject", accepted[1]).out == f"rejected before: {accepted[1]}\n"
    error = call("baseline", "accept", "journal.jsonl", "--session", accepted[1]).error
    assert f"the session {accepted[1]} was rejected on" in error
    assert "hot room" in error
    assert "no accepted session 'x'" in call("baseline", "reject", "x").error


def test_anchor_by_name_and_by_number(accepted: list[str], call: Run) -> None:
    out, names = call("baseline", "anchor", "--newest", 2).out, ", ".join(sorted(accepted[5:]))
    assert out.startswith(f"anchor is now {names}: 2 cases in baselines/h200/")
    assert call("baseline", "anchor", "--newest", 2).out == f"anchor already: {names}\n"
    assert call("baseline", "anchor", accepted[0], "--case", OTHER).status == 0
    assert [row["session"] for row in shown(call) if row["anchor"]] == accepted[5:]
    assert [row["session"] for row in shown(call, OTHER) if row["anchor"]] == accepted[:1]
    assert "no accepted session 'x'" in call("baseline", "anchor", "x").error
    assert call("baseline", "anchor").status == 2
    assert call("baseline", "anchor", "x", "--newest", 1).status == 2


@pytest.mark.usefixtures("accepted")
def test_rename_keeps_the_history(work: Path, call: Run) -> None:
    out = call("baseline", "rename", CASE, NEW).out
    assert out.startswith(f"{NEW} takes over 7 sessions of {CASE}\ndigest digest of {CASE} -> digest from its first")
    assert f"renamed  {CASE} -> {NEW}" in call("baseline", "list").out
    assert f"renamed to {NEW}" in call("baseline", "show", CASE).out
    assert len(shown(call, NEW)) == 7
    write_run(work / "journal.jsonl", 8.0, cases=(NEW,))
    assert call("baseline", "accept", "journal.jsonl").status == 0
    assert [row["median"] for row in shown(call, NEW)] == pytest.approx([value * 1e-3 for value in range(1, 9)])
    assert f"{CASE} is renamed already" in call("baseline", "rename", CASE, OTHER).error


def test_reset_lets_one_case_begin_anew(accepted: list[str], work: Path, call: Run) -> None:
    error = call("baseline", "reset", "buckets/profile/tiny-bucket12", "--reason", "fp8").error
    assert f"no accepted case 'buckets/profile/tiny-bucket12'; did you mean '{CASE}'" in error
    assert (
        "nothing was accepted on 'lab'; hardware: h200"
        in call("baseline", "reset", CASE, "--reason", "fp8", "--hardware", "lab").error
    )
    assert "a reset needs a reason" in call("baseline", "reset", CASE, "--reason", " ").error
    assert call("baseline", "reset", CASE).status == 2
    out = call("baseline", "reset", "buckets/*/tiny-bucket128", "--reason", "fp8 cache", "--hardware", "h200").out
    (path,) = work.glob("baselines/*/*.json")
    assert out == f"reset 1 case in {path.relative_to(work)}: 7 sessions of theirs went\n"
    assert call("baseline", "show", CASE).out.splitlines()[1].startswith("reset on 20")
    assert call("baseline", "show", CASE, "--json").json["keys"] == []
    assert len(shown(call, OTHER)) == 7
    accepted.append(write_run(work / "journal.jsonl", 8.0))
    assert call("baseline", "accept", "journal.jsonl").status == 0
    assert [row["session"] for row in shown(call)] == accepted[7:]
    assert [row["session"] for row in shown(call, OTHER)] == accepted


def test_a_night_from_before_a_reset_is_not_accepted_for_that_case(
    work: Path, call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(work / "journal.jsonl", 1.0)
    assert call("baseline", "accept", "journal.jsonl").status == 0
    session = write_run(work / "journal.jsonl", 2.0)
    monkeypatch.setattr("pytest_npubench.store.baseline_changes.now", lambda: "2126-11-21T13:05:00+00:00")
    assert call("baseline", "reset", CASE, "--reason", "fp8 cache").status == 0
    out = call("baseline", "accept", "journal.jsonl").out
    assert f": {CASE} is refused (was reset on 2126-11-21 (fp8 cache), and the session {session} began before)" in out
    assert out.startswith("accepted 1 of 2 cases into ")


def test_merge_takes_in_another_folder(accepted: list[str], work: Path, call: Run) -> None:
    session = write_run(work / "other.jsonl", 9.0)
    assert call("baseline", "accept", "other.jsonl", "--baselines", "other").status == 0
    (path,) = work.glob("baselines/*/*.json")
    out = call("baseline", "merge", "other").out
    assert out == f"merged 1 new session of other: 2 cases in {path.relative_to(work)}\n"
    assert {row["session"] for row in shown(call)} == {*accepted, session}
    assert call("baseline", "merge", "other").out == "baselines holds all of other already\n"
    assert "nowhere: No such file" in call("baseline", "merge", "nowhere").error


@pytest.mark.usefixtures("accepted")
def test_prune_says_what_goes(work: Path, call: Run) -> None:
    (path,) = work.glob("baselines/*/*.json")
    assert call("baseline", "prune", "--older-than", 1).out == "dropped 0 files\n"
    key = path.stem.split("-")[1]
    out = call("baseline", "prune", "--key", key, "--dry-run").out
    assert out.startswith(f"{path.relative_to(work)}: 2 cases, newest session of 20")
    assert out.endswith("would drop 1 file\n")
    assert path.exists()
    assert call("baseline", "prune", "--key", key).out.endswith("dropped 1 file\n")
    assert not path.exists()
    assert f"no file has the key {key}; keys: none" in call("baseline", "prune", "--key", key).error
    for usage in ((), ("--key", key, "--keep", 1), ("--keep", 0), ("--older-than", "x")):
        assert call("baseline", "prune", *usage).status == 2


@pytest.mark.parametrize("action", ["list", "show", "accept", "reject", "reset", "anchor", "prune", "rename", "merge"])
def test_each_action_has_help_with_an_example(call: Run, action: str) -> None:
    answer = call("baseline", action, "--help")
    assert answer.status == 0
    assert f"example: npubench baseline {action}" in answer.out


def test_the_spread() -> None:
    processes = ((1.0, 2.0, 3.0), (3.0, 4.0, 5.0))
    kept = KeptSamples(processes=processes, num_measured=(3, 3))
    assert spread(kept) == 0.5
    low, _, high = statistics.quantiles([1, 2, 3, 3, 4, 5], n=4, method="inclusive")
    assert (low, high) == (2.25, 3.75)
    assert spread(KeptSamples(processes=((1.0,),), num_measured=(1,))) is None
    assert spread(KeptSamples(processes=((0.0, 0.0),), num_measured=(2,))) is None


def test_what_is_changed_is_told_in_json(accepted: list[str], work: Path, call: Run) -> None:
    """Each document holds what the line for people says, and the files that it names are those that changed."""

    def told(*words: object) -> dict[str, Any]:
        before = {path: path.read_bytes() for path in work.rglob("*.json")}
        document: dict[str, Any] = call("baseline", *words, "--json").json
        after = {path: path.read_bytes() for path in work.rglob("*.json")}
        written = [document["path"]] if "path" in document else document["paths"]
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert {work / name for name in written} == changed
        assert document["version"] == 1
        return document

    anchored = told("anchor", "--newest", 2)
    assert (anchored["format"], anchored["sessions"]) == ("npubench-baseline-changed", sorted(accepted[-2:]))
    assert anchored["num_cases"] == 2
    rejected = told("reject", accepted[0], "--reason", "too warm")
    assert (rejected["sessions"], rejected["num_cases"]) == ([accepted[0]], 2)
    assert told("reject", accepted[0]) == {**rejected, "num_cases": 0, "paths": []}
    renamed = told("rename", CASE, NEW)
    assert renamed["format"] == "npubench-baseline-renamed"
    assert (renamed["old"], renamed["new"], renamed["num_sessions"]) == (CASE, NEW, 6)
    other = work / "other"
    write_run(work / "second.jsonl", 8)
    assert call("baseline", "accept", "second.jsonl", "--baselines", other).status == 0
    merged = told("merge", other)
    assert (len(merged["sessions"]), merged["num_cases"]) == (1, 2)
    reset = told("reset", OTHER, "--reason", "fp8 cache")
    assert (len(reset["sessions"]), reset["num_cases"]) == (7, 1)
    (file,) = (work / "baselines").rglob("*/*.json")
    tried = call("baseline", "prune", "--key", file.stem.rpartition("-")[2], "--dry-run", "--json").json
    assert (tried["format"], tried["dry_run"], len(tried["paths"])) == ("npubench-baseline-pruned", True, 1)
    assert file.exists()
    pruned = told("prune", "--key", file.stem.rpartition("-")[2])
    assert (pruned["paths"], pruned["dry_run"]) == (tried["paths"], False)
    assert not file.exists()


@pytest.mark.usefixtures("accepted")
@pytest.mark.parametrize("name", [OTHER, "tiny-bucket256", "profile/bucket256"])
def test_a_case_is_reset_or_anchored_by_its_id_or_a_short_name(name: str, call: Run) -> None:
    assert call("baseline", "anchor", "--newest", 1, "--case", name, "--json").json["num_cases"] == 1
    assert [sum(row["anchor"] for row in shown(call, case)) for case in (CASE, OTHER)] == [7, 1]
    assert call("baseline", "reset", name, "--reason", "fp8", "--json").json["num_cases"] == 1
    assert len(shown(call)) == 7
    assert call("baseline", "show", name, "--json").json["keys"] == []


@pytest.mark.usefixtures("accepted")
@pytest.mark.parametrize(
    "line", [("reset", "profile", "--reason", "x"), ("anchor", "--newest", "1", "--case", "profile")], ids=" ".join
)
def test_a_name_of_two_cases_changes_nothing(line: tuple[str, ...], work: Path, call: Run) -> None:
    before = {path: path.read_bytes() for path in work.rglob("*.json")}
    assert f"profile may be {CASE} or {OTHER}; want one of them" in call("baseline", *line).error
    assert {path: path.read_bytes() for path in work.rglob("*.json")} == before


def test_a_renamed_case_is_one_case_under_both_short_names(accepted: list[str], call: Run) -> None:
    assert call("baseline", "rename", CASE, NEW).status == 0
    for name in ("profile/tiny-bucket128", "profile/small-bucket128", "profile/bucket128"):
        answer = call("baseline", "anchor", accepted[-1], "--case", name)
        assert answer.status == 0, answer.err
    assert [row["session"] for row in shown(call, NEW) if row["anchor"]] == accepted[-1:]
