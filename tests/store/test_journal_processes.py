"""The journal under several processes, kills and a limit of the real kernel: what was acknowledged is there."""

import itertools
import json
import os
import random
import signal
import time

import pytest

from pytest_npubench.store.journal import JournalWriter, read_journal

OPEN = """
import json, os, sys
from pathlib import Path
from pytest_npubench.store.fingerprint import HostFacts
from pytest_npubench.store.journal import JournalWriter
host = HostFacts(name="h", cpu_model="c", num_cores=1, system="s", python="p", libraries=(), plugin_version="0",
                 git_revision=None)
journal = JournalWriter.open(Path(sys.argv[1]), host=host, settings={}, worker=sys.argv[2])
"""
APPEND_FOR_EVER = (
    OPEN
    + """
for index in range(10**9):
    padding = "x" * (400_000 if index % 2 else 10)  # long lines, so that a kill can fall inside a write
    journal.append({"record": "note", "text": "n", "index": index, "padding": padding})
    os.write(1, f"{journal.session} {index}\\n".encode())
"""
)
APPEND_MANY = (
    OPEN
    + """
print("ready", flush=True)
sys.stdin.readline()
for index in range(200):
    journal.append({"record": "note", "text": "n", "index": index, "padding": "x" * (index * 50)})
"""
)
APPEND_UP_TO_A_FILE_SIZE = (
    OPEN
    + """
import resource
from pytest_npubench.errors import JournalError
size = os.stat(sys.argv[1]).st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1000, resource.RLIM_INFINITY))
try:
    for index in range(100):
        journal.append({"record": "note", "text": "n", "index": index})
except JournalError as error:
    message = str(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
journal.append({"record": "note", "text": "n", "index": -1})
print(json.dumps([index, message]))
"""
)


def test_a_kill_at_any_time_loses_nothing_that_was_acknowledged(tmp_path, start):
    path = tmp_path / "journal.jsonl"
    chance = random.Random(7)
    for _ in range(20):
        with start(APPEND_FOR_EVER, path, "w") as process:
            acknowledged = [process.stdout.readline() for _ in range(chance.randrange(1, 6))]
            time.sleep(chance.random() * 0.01)
            os.kill(process.pid, signal.SIGKILL)
            # communicate() would drop what readline() has read ahead
            rest, errors = process.stdout.read(), process.stderr.read()
        assert errors == ""
        session, last = "".join([*acknowledged, rest]).splitlines()[-1].split()
        found = {
            item.id: [r["index"] for r in item.records if r["record"] == "note"] for item in read_journal(path).sessions
        }
        # one line more may be whole: killed after the write and before the acknowledgement
        assert found[session] in (list(range(int(last) + 1)), list(range(int(last) + 2)))
    assert len(read_journal(path).sessions) == 20


def test_two_processes_at_once_both_land_whole(tmp_path, start, run_at_once):
    path = tmp_path / "journal.jsonl"
    processes = [start(APPEND_MANY, path, worker) for worker in ("gw0", "gw1")]
    run_at_once(processes)
    read = read_journal(path)
    assert {session.header["worker"] for session in read.sessions} == {"gw0", "gw1"}
    owners = [record["session"] for record in read.records]
    assert sum(one != two for one, two in itertools.pairwise(owners)) > 10  # they did run at once
    for session in read.sessions:
        assert [record["index"] for record in session.records] == list(range(200))
        assert all(len(record["padding"]) == record["index"] * 50 for record in session.records)
    assert read.torn == ()


def test_a_write_that_the_kernel_cuts_short_is_taken_back(tmp_path, start):
    path = tmp_path / "journal.jsonl"
    process = start(APPEND_UP_TO_A_FILE_SIZE, path, "w")
    output, errors = process.communicate(timeout=60)
    assert errors == ""
    failed_at, message = json.loads(output)
    assert 0 < failed_at < 100
    assert message.endswith(f"File too large after {failed_at + 1} records; what was written before is whole")
    read = read_journal(path)
    assert [record["index"] for record in read.records] == [*range(failed_at), -1]
    assert read.torn == ()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")  # jax's, where another test imported it
def test_a_forked_child_writes_beside_its_parent(tmp_path, host):
    path = tmp_path / "journal.jsonl"
    with JournalWriter.open(path, host=host, settings={}) as journal:
        child = os.fork()
        if child == 0:
            try:
                for index in range(100):
                    journal.append({"record": "note", "text": "child", "index": index, "padding": "x" * 20_000})
            finally:
                os._exit(0)
        for index in range(100):
            journal.append({"record": "note", "text": "parent", "index": index, "padding": "x" * 20_000})
        os.waitpid(child, 0)
    records = read_journal(path).records
    for who in ("child", "parent"):
        assert [record["index"] for record in records if record["text"] == who] == list(range(100))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
def test_a_forked_child_that_ends_before_it_counted_its_line_leaves_the_numbers_whole(tmp_path, host):
    path = tmp_path / "journal.jsonl"
    with JournalWriter.open(path, host=host, settings={}) as journal:
        child = os.fork()
        if child == 0:
            journal._numbers.written = lambda: os._exit(0)
            journal.append({"record": "note", "text": "child"})
        os.waitpid(child, 0)
        journal.append({"record": "note", "text": "parent"})
        journal.append({"record": "note", "text": "parent again"})
    read = read_journal(path)
    assert read.damage == ()
    assert [record["text"] for record in read.records] == ["child", "parent", "parent again"]
