"""A command that ends with its owner and at its limit, with all that it has started, whatever any of them does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from process_states import runs, until

from pytest_npubench.processes import guarded
from pytest_npubench.processes.guarded import Guarded

# A command with descendants of every kind: a child, one in a session of its own, one whose parent has gone. Each leaves
# its number, and none of them can be interrupted.
FAMILY = """
trap '' INT TERM
echo $$ >> pids
sh -c 'echo $$ >> pids; exec sleep 300' &
setsid sh -c 'echo $$ >> pids; exec sleep 300' &
sh -c '(echo $$ > /dev/null; sh -c "echo \\$\\$ >> pids; exec sleep 300") & exit'
while true; do sleep 300; done
"""
OWNER = """
import sys
from pytest_npubench.processes import guarded
guarded.run(["sh", "-c", sys.argv[1]], limit_s=float(sys.argv[2]))
"""


def pids(folder: Path) -> list[int]:
    path = folder / "pids"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def none_is_left(folder: Path) -> bool:
    return not any(map(runs, pids(folder)))


def owner(folder: Path, limit_s: float) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, FAMILY, str(limit_s)], cwd=folder)
    until(lambda: len(pids(folder)) == 4)
    return process


def test_a_killed_owner_takes_all_of_it_along(tmp_path: Path) -> None:
    process = owner(tmp_path, 300)
    process.kill()
    process.wait()
    until(lambda: none_is_left(tmp_path))


FORKING = """
import os, signal, sys, time
from pytest_npubench.processes.guarded import Guarded
started = Guarded(["sh", "-c", "echo $$ >> pids; exec sleep 300"])
if os.fork() == 0:
    time.sleep(300)
while not os.path.exists("pids"):
    time.sleep(0.02)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_fork_of_the_owner_does_not_keep_it_alive(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", FORKING], cwd=tmp_path, start_new_session=True)
    process.wait()
    try:
        until(lambda: none_is_left(tmp_path))
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the fork


def test_the_limit_holds_where_the_owner_is_stopped(tmp_path: Path) -> None:
    process = owner(tmp_path, 1.0)
    process.send_signal(signal.SIGSTOP)
    try:
        until(lambda: none_is_left(tmp_path))
    finally:
        process.kill()
        process.wait()


def test_a_stopped_command_ends_at_its_limit(tmp_path: Path) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        guarded.run(["sh", "-c", "echo $$ >> pids; kill -STOP $$"], limit_s=0.3, folder=tmp_path)
    assert none_is_left(tmp_path)


def test_a_guard_that_is_killed_takes_its_command_along(tmp_path: Path) -> None:
    started = Guarded(["sh", "-c", "echo $$ >> pids; exec sleep 300"], folder=tmp_path)
    until(lambda: len(pids(tmp_path)) == 1)
    started.process.kill()
    until(lambda: none_is_left(tmp_path))
    started.end()


@pytest.mark.parametrize(
    ("script", "status", "stdout", "stderr"),
    [
        ("echo one; echo two >&2; exit 3", 3, "one\n", "two\n"),
        ("kill -SEGV $$", -signal.SIGSEGV, "", ""),
        ("kill -ALRM $$", -signal.SIGALRM, "", ""),
        ("printf '\\377'", 0, "\ufffd", ""),
    ],
)
def test_a_command_ends_as_if_nobody_guarded_it(script: str, status: int, stdout: str, stderr: str) -> None:
    done = guarded.run(["sh", "-c", script], limit_s=60)
    assert (done.returncode, done.stdout, done.stderr) == (status, stdout, stderr)
    plain = subprocess.run(["sh", "-c", script], capture_output=True, check=False)
    assert plain.returncode == status


def test_it_keeps_environment_folder_and_signals(tmp_path: Path) -> None:
    script = "echo $NAME; pwd; grep SigIgn /proc/self/status"
    done = guarded.run(["sh", "-c", script], limit_s=60, env={**os.environ, "NAME": "x"}, folder=tmp_path)
    plain = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout.splitlines() == ["x", *plain.stdout.splitlines()[1:]]


def test_a_daemon_that_keeps_the_pipes_is_not_waited_for(tmp_path: Path) -> None:
    script = "sh -c 'echo $$ >> pids; exec sleep 300' & echo done; while [ ! -s pids ]; do sleep 0.01; done"
    done = guarded.run(["sh", "-c", script], limit_s=60, folder=tmp_path)
    try:
        assert done.stdout == "done\n"
        assert not none_is_left(tmp_path)  # a command may leave a daemon behind, as without a guard
    finally:
        os.kill(pids(tmp_path)[0], signal.SIGKILL)


def test_the_end_of_an_endless_output_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarded, "MAX_BYTES", 1000)
    done = guarded.run(["sh", "-c", "yes | head -c 3000000; echo end"], limit_s=60)
    assert done.stdout.endswith("y\nend\n")
    assert len(done.stdout) <= 2000


def test_a_program_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        guarded.run(["no-such-program"], limit_s=60)
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    done = guarded.run([str(broken)], limit_s=60)
    assert (done.returncode, done.stderr) == (127, f"{broken}: Exec format error\n")


def test_a_command_that_may_end_by_itself_is_interrupted_first(tmp_path: Path) -> None:
    script = "trap 'echo tidy > ended; exit' INT; echo $$ >> pids; while true; do sleep 0.02; done"
    started = Guarded(["sh", "-c", script], grace_s=60, folder=tmp_path)
    until(lambda: len(pids(tmp_path)) == 1)
    started.end()
    assert (tmp_path / "ended").read_text() == "tidy\n"
    started.end()


def test_a_signal_to_the_guard_is_the_command_s(tmp_path: Path) -> None:
    script = "trap 'exit 9' TERM; echo $$ >> pids; while true; do sleep 0.02; done"
    started = Guarded(["sh", "-c", script], folder=tmp_path)
    until(lambda: len(pids(tmp_path)) == 1)
    started.process.terminate()
    assert started.process.wait() == 9
    started.end()
