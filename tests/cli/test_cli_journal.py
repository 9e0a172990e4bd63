"""`npubench journal`: check lists sessions and damage."""

import json
from collections import Counter

import pytest
from store.history.made_journals import case_record, stack, write_session
from store.journal_lines import edited

from pytest_npubench.store.journal import JournalWriter, read_journal


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "journal.jsonl"
    for _ in range(3):
        write_session(path)
    return path


def test_check_lists_sessions_and_says_whole(call, path):
    done = call("journal", "check", str(path))
    assert done.status == 0
    assert done.out.startswith(f"{path}: whole\n")
    assert all(session.id in done.out for session in read_journal(path).sessions)


def test_check_names_damage_and_goes_on_with_the_next(call, path, tmp_path):
    edited(path, lambda lines: lines.pop(7))
    done = call("journal", "check", "--json", str(tmp_path / "absent"), str(path))
    assert done.status == 1
    absent, found = json.loads(done.out)["journals"]
    assert "No such file" in absent["error"]
    assert Counter(session["whole"] for session in found["sessions"]) == {True: 2, False: 1}
    (damage,) = found["damage"]
    assert (damage["line"], damage["what"]) == (8, "1 line of its session before it missing")
    text = call("journal", "check", str(path)).out
    assert f"line 8: 1 line of its session before it missing (session {damage['sessions'][0]})" in text


def test_other_commands_go_on_without_a_damaged_session_and_say_so(call, path, tmp_path):
    with JournalWriter.open(path, host=stack().host, settings={}) as journal:
        record = case_record(journal.device(stack()))
        journal.append(record)
        journal.append({"record": "outcome", "case": record["case"], "device": "cuda:0", "outcome": "passed"})
        journal.append({"record": "end", "exit_status": 0, "counts": {}})
    other = tmp_path / "other.jsonl"
    write_session(other)
    edited(path, lambda lines: lines.pop(7))
    left_out = f"journal {path} is damaged, 1 session left out: line 8"
    done = call("history", "upload", str(path), "--history", str(tmp_path / "history.db"))
    assert "3 sessions (3 new" in done.out
    assert left_out in done.out
    assert "".join(left_out.split()) in "".join(call("compare", str(path), str(other)).out.split())  # lines are wrapped
    done = call("baseline", "accept", str(path), "--baselines", str(tmp_path / "baselines"))
    assert done.out.startswith("accepted 1 case"), done.err
    done = call("show", "--html", str(path), "-o", str(tmp_path / "report.html"))
    assert done.status == 0
    assert "is damaged, 1 session left out" in (tmp_path / "report.html").read_text()
