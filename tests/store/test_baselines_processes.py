"""Accepting under kills and from several processes: a file is the old one or the new one, and nothing is lost."""

import errno
import json
import os
import signal
from pathlib import Path

import pytest

from pytest_npubench.errors import BaselineError
from pytest_npubench.store import baseline_files
from pytest_npubench.store.baselines import Baselines, CaseResult, MetricResult

CASE = "buckets/profile/cpu-tiny-b4-bucket128"
ACCEPT = """
import json, os, signal, sys
from pathlib import Path
from pytest_npubench.store.baselines import Baselines, CaseResult, MetricResult
from pytest_npubench.store.fingerprint import FingerprintKey
directory, worker, key = Path(sys.argv[1]), sys.argv[2], FingerprintKey.from_json(json.loads(sys.argv[3]))
def accept(index):
    metric = MetricResult(name="tbt_s", unit="s", better="lower", processes=((1.0 + index,) * 10,))
    results = [CaseResult(hardware="cpu", case="buckets/profile/cpu-tiny-b4-bucket128", digest="d", metrics=(metric,))]
    Baselines(directory=directory, files=()).accept(results, session=f"{worker}-{index}", key=key)
"""
ACCEPT_NINE = (
    ACCEPT
    + """
print("ready", flush=True)
sys.stdin.readline()
for index in range(9):
    accept(index)
"""
)
KILLED_BEFORE_REPLACE = (
    ACCEPT
    + """
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
accept(5)
"""
)


def accept(directory, key, index):
    metric = MetricResult(name="tbt_s", unit="s", better="lower", processes=((1.0 + index,) * 10,))
    results = [CaseResult(hardware="cpu", case=CASE, digest="d", metrics=(metric,))]
    return Baselines(directory=directory, files=()).accept(results, session=f"main-{index}", key=key)


def test_two_processes_at_once_both_land(tmp_path, start, key, run_at_once):
    arguments = json.dumps(key.to_json())
    processes = [start(ACCEPT_NINE, tmp_path, worker, arguments) for worker in ("a", "b")]
    run_at_once(processes)
    (file,) = Baselines.load(tmp_path).files
    found = [session.session for session in file.cases[CASE].sessions]
    assert sorted(found) == [f"{worker}-{index}" for worker in "ab" for index in range(9)]


def test_a_kill_before_the_replace_leaves_the_old_file_whole(tmp_path, start, key):
    (path,) = accept(tmp_path, key, 0)
    before = path.read_bytes()
    process = start(KILLED_BEFORE_REPLACE, tmp_path, "a", json.dumps(key.to_json()))
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == -signal.SIGKILL
    assert path.read_bytes() == before
    (left,) = path.parent.glob(".npubench-*.tmp")
    os.utime(left, (0, 0))
    assert len(Baselines.load(tmp_path).sessions(CASE, "tbt_s", key, digest="d")) == 1
    accept(tmp_path, key, 1)  # neither the lock nor the temporary file of the dead process is in the way
    assert len(Baselines.load(tmp_path).sessions(CASE, "tbt_s", key, digest="d")) == 2
    assert not list(path.parent.glob(".npubench-*.tmp"))


def test_a_fake_full_disk_leaves_the_old_file_whole(tmp_path, key, monkeypatch):
    (path,) = accept(tmp_path, key, 0)
    before = path.read_bytes()

    def fsync(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(baseline_files.os, "fsync", fsync)
    with pytest.raises(BaselineError, match="No space left on device"):
        accept(tmp_path, key, 1)
    assert path.read_bytes() == before


def test_a_lock_that_is_held_is_an_error_that_names_it(tmp_path, key, monkeypatch):
    monkeypatch.setattr(baseline_files, "LOCK_TIMEOUT_S", 0.05)
    with (
        baseline_files.locked(tmp_path),
        pytest.raises(BaselineError, match=r"another process has held .*baselines\.lock for 0\.05 s"),
    ):
        accept(tmp_path, key, 0)


def test_the_lock_lies_in_a_hidden_folder_of_its_own(tmp_path, key):
    accept(tmp_path, key, 0)
    visible = {path.relative_to(tmp_path) for path in tmp_path.iterdir() if path.name[0] != "."}
    assert visible == {Path("cpu")}
