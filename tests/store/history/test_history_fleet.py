"""A fleet that writes at once: several sessions a writer, one journal uploaded by all of them, some killed in the
middle and repeated. No row may be lost or stand twice, counted against the journals.
"""

import selectors
import time

import pytest
from made_journals import case_record, expected_rows, redated, stack, write_session

from pytest_npubench.store.history import latest_cases, upload_journal
from pytest_npubench.store.journal import JournalWriter, read_journal

WRITER = """
import sys
from pathlib import Path
from pytest_npubench.store.history import upload_journal
from pytest_npubench.store.journal import read_journal
url, *paths = sys.argv[1:]
journals = [read_journal(Path(path)) for path in paths]
print("ready", flush=True)
sys.stdin.readline()
for journal in journals:
    upload_journal(url, journal)
print("done", flush=True)
"""
STUCK = (
    """
import time
from pytest_npubench.store.history import upload
whole, num_written = upload._write, 0
def write(connection, rows):
    global num_written
    outcome = whole(connection, rows)
    num_written += 1
    if num_written == 3:
        print("inside", flush=True)  # every row of the third session is written, and nothing of it committed
        time.sleep(600)
    return outcome
upload._write = write
"""
    + WRITER
)
NUM_SESSIONS = 4
NUM_CASES = 6


def make_journal(path, num_sessions):
    for number in range(num_sessions):
        write_session(path, num_cases=NUM_CASES, host=path.stem, driver=f"570.{number % 3}")
    return path


def test_the_latest_case_of_each_host_is_that_of_its_newest_session(url, tmp_path):
    path = tmp_path / "journal.jsonl"
    for number, host in enumerate(("bench-1", "bench-2", "bench-1")):
        with JournalWriter.open(path, host=stack(host=host).host, settings={}) as journal:
            verdict = {"kind": ("passed", "failed", "invalid")[number], "reason": str(number)}
            fingerprint = None if number == 2 else journal.device(stack(host=host))
            journal.append(case_record(fingerprint, verdict=verdict))
    redated(path, [f"2026-11-0{number + 1}T02:00:00+00:00" for number in range(3)])
    upload_journal(url, read_journal(path))
    latest = {record.host: record for record in latest_cases(url)}
    assert {host: (record.verdict, record.reason, record.device_class) for host, record in latest.items()} == {
        "bench-1": ("invalid", "2", None),
        "bench-2": ("failed", "1", "H200 SXM 141 GB"),
    }


def run_fleet(url, folder, start, *, num_writers, num_killed):
    """Start the writers at once, kill the first ones inside their third session, wait for the others."""
    shared = make_journal(folder / "shared.jsonl", NUM_SESSIONS)
    running = folder / "running.jsonl"  # what a writer had read while the last session went on
    running.write_text("".join(shared.read_text().splitlines(keepends=True)[:-3]))
    journals, writers = [], []
    for number in range(num_writers):
        path = make_journal(folder / f"bench-{number}.jsonl", NUM_SESSIONS)
        journals.append(path)
        if number < num_killed:
            writers.append(start(STUCK, url, path, shared))
        else:
            writers.append(start(WRITER, url, running if number % 2 else shared, path, path, shared))
    release(writers)
    kill_inside(writers[:num_killed])
    for number, writer in enumerate(writers):
        out, errors = writer.communicate(timeout=120)
        assert errors == ""
        assert (out, writer.returncode) == (("", -9) if number < num_killed else ("done\n", 0))
    return [shared, *journals]


def kill_inside(writers):
    """Kill each as soon as it is inside: in SQLite only one of them can be, and the others wait for it."""
    with selectors.DefaultSelector() as waiting:
        for writer in writers:
            waiting.register(writer.stdout, selectors.EVENT_READ, writer)
        while waiting.get_map():
            for key, _ in waiting.select(timeout=120):
                assert key.data.stdout.readline() == "inside\n"
                key.data.kill()
                waiting.unregister(key.fileobj)


def release(writers):
    """Let all of them begin at the same instant, once each has read its journals."""
    for writer in writers:
        assert writer.stdout.readline() == "ready\n", writer.communicate()[1]
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_no_row_is_lost_or_doubled(kind, request, tmp_path, start, rows_of):
    if kind == "sqlite":
        url, num_writers, num_killed = str(tmp_path / "history.db"), 4, 2
    else:
        url, num_writers, num_killed = request.getfixturevalue("postgres_url"), 8, 3
    journals = run_fleet(url, tmp_path, start, num_writers=num_writers, num_killed=num_killed)
    whole, found = expected_rows(*journals), rows_of(url)
    missing = whole["sessions"].keys() - found["sessions"].keys()
    assert len(missing) == 2 * num_killed  # of each killed one the third session and the fourth
    assert found["sessions"] == {name: status for name, status in whole["sessions"].items() if name not in missing}
    for name in ("cases", "metrics"):
        assert found[name] == {key: row for key, row in whole[name].items() if key[0] not in missing}
    for path in journals[1 : 1 + num_killed]:
        upload_journal(url, read_journal(path))
    assert rows_of(url) == whole


@pytest.mark.soak
def test_kills_at_any_instant_leave_whole_sessions(url, tmp_path, start, rows_of):
    journals = [make_journal(tmp_path / f"bench-{number}.jsonl", 20) for number in range(2)]
    for delay_s in (0.0, 0.01, 0.02, 0.04, 0.08, 0.16):
        writers = [start(WRITER, url, path) for path in journals]
        release(writers)
        time.sleep(delay_s)
        for writer in writers:
            writer.kill()
        for writer in writers:
            assert writer.communicate(timeout=60)[1] == ""
    for path in journals:
        upload_journal(url, read_journal(path))
    assert rows_of(url) == expected_rows(*journals)


@pytest.mark.soak
def test_two_states_of_one_session_uploaded_at_once(url, tmp_path, start, rows_of):
    whole = make_journal(tmp_path / "whole.jsonl", 10)
    cut = tmp_path / "cut.jsonl"
    lines = whole.read_text().splitlines(keepends=True)
    num_lines = len(lines) // 10
    cut.write_text("".join(line for number, line in enumerate(lines) if number % num_lines < num_lines // 2))
    writers = [start(WRITER, url, path) for path in (whole, cut, whole, cut)]
    release(writers)
    for writer in writers:
        assert writer.communicate(timeout=60) == ("done\n", "")
    assert rows_of(url) == expected_rows(whole)
