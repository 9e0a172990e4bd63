"""`npubench journal`: check lists sessions and damage, salvage keeps what can be proven."""

import json
from collections import Counter

import pytest
from store.history.made_journals import case_record, stack, write_session
from store.journal_lines import read_lines, write_version_1

from pytest_npubench.store.journal import JournalWriter, read_journal


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "journal.jsonl"
    for _ in range(3):
        write_session(path)
    return path


def edited(path, edit):
    lines = path.read_bytes().splitlines(keepends=True)
    edit(lines)
    path.write_bytes(b"".join(lines))


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


def test_salvage_keeps_whole_sessions_as_they_are_and_counts_what_a_damaged_one_lost(call, path, tmp_path):
    before = path.read_bytes().splitlines()
    edited(path, lambda lines: lines.pop(8))
    new = tmp_path / "new.jsonl"
    done = call("journal", "salvage", str(path), "--output", str(new))
    assert done.status == 0
    assert done.out == f"wrote {new}: 14 records of 3 sessions, 2 of them whole\nlost: 1 record\n"
    assert new.read_bytes().splitlines()[:6] == before[:6]
    assert new.read_bytes().splitlines()[-6:] == before[-6:]
    salvaged = read_journal(new)
    assert (salvaged.damage, [session.end is None for session in salvaged.sessions]) == ((), [False, True, False])
    assert [record["record"] for record in salvaged.sessions[1].records] == ["device", "case", "case", "salvaged"]
    again = call("journal", "salvage", str(path), "--output", str(new))
    assert again.status == 1
    assert "File exists; want the name of a new file" in again.err


@pytest.mark.parametrize(
    "edit", [lambda lines: lines.insert(8, lines[8]), lambda lines: lines.insert(8, lines.pop(10))]
)
def test_a_session_of_which_nothing_is_lost_is_whole_again(call, path, tmp_path, edit):
    before = path.read_bytes()
    edited(path, edit)
    assert read_journal(path).damage
    assert call("journal", "salvage", str(path), "--output", str(tmp_path / "new.jsonl")).status == 0
    assert (tmp_path / "new.jsonl").read_bytes() == before


def test_a_session_without_a_header_is_lost_and_named(call, path, tmp_path):
    (session, *_) = read_journal(path).sessions
    edited(path, lambda lines: lines.pop(0))
    done = call("journal", "salvage", str(path), "--output", str(tmp_path / "new.jsonl"))
    assert done.out.endswith(f"lost: 5 records, and sessions without a header: {session.id}\n")
    assert len(read_journal(tmp_path / "new.jsonl").sessions) == 2


def test_version_1_is_salvaged_as_version_1(call, path, tmp_path):
    write_version_1(path, read_lines(path))
    edited(path, lambda lines: lines.__setitem__(8, lines[8].replace(b'"digest"', b'"d?gest"')))
    done = call("journal", "salvage", str(path), "--output", str(tmp_path / "new.jsonl"))
    assert done.status == 0, done.err
    salvaged = read_journal(tmp_path / "new.jsonl")
    assert [len(session.records) for session in salvaged.sessions] == [5, 4, 5]
    assert salvaged.sessions[1].end is None


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
    done = call("report", str(path), "-o", str(tmp_path / "report.html"))
    assert done.status == 0
    assert "is damaged, 1 session left out" in (tmp_path / "report.html").read_text()
