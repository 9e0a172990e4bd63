"""A child of ours that does something it should not: the owner hears what, keeps its memory, and nothing is left."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from process_states import runs, until

from pytest_npubench.errors import ConfigError, MeasurementError, UnitLostError
from pytest_npubench.processes import child as child_module
from pytest_npubench.processes.child import Child, hosted, import_path

PROGRAM = """
import ctypes, os, pickle, signal, socket, struct, subprocess, sys, threading, time
from pytest_npubench.processes.owner import Owner
owner = Owner()
raw = socket.socket(fileno=os.dup(owner.fileno()))
class Methods:
    def echo(self, *values):
        return values
    def pid(self):
        return os.getpid()
    def refuse(self, error, text):
        raise error(text)
    def unsendable(self):
        return lambda: None
    def die(self, status):
        os.write(1, b"something broke\\n")
        os._exit(status)
    def killed(self, number):
        os.kill(os.getpid(), number)
    def hang(self):
        time.sleep(300)
    def hold(self):
        ctypes.PyDLL(None).sleep(300)  # unlike CDLL it keeps Python's lock
    def half(self, then, *values):
        raw.setblocking(True)
        raw.sendall(struct.pack("!Q", 1000) + b"half of it")
        getattr(self, then)(*values)
    def send(self, garbage):
        raw.setblocking(True)
        raw.sendall(garbage)
        self.hang()
    def flood(self):
        while True:
            owner.send("ok", bytes(10**6))
    def close_end(self):
        raw.close()
        os.close(owner.fileno())
        self.hang()
    def print(self, text, times):
        for stream in (sys.stdout, sys.stderr):
            for _ in range(times):
                stream.write(text)
            stream.flush()
    def print_for_ever(self):
        threading.Thread(target=lambda: [os.write(2, b"again and again\\n") for _ in iter(int, 1)], daemon=True).start()
    def family(self):
        script = "trap '' TERM INT; echo $$; (setsid sh -c 'trap \\"\\" TERM; echo $$; sleep 300' &); sleep 300"
        started = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, text=True)
        return [os.getpid(), *(int(started.stdout.readline()) for _ in range(2))]
    def open_files(self):
        links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd") if int(name) > 2]
        return [os.readlink(link) for link in links if os.path.islink(link)]
    def close_file(self, number):
        os.close(number)
    def forked(self, status):
        if os.fork() == 0:
            time.sleep(300)
        os._exit(status)
owner.serve(Methods())
"""


def start(name: str = "the test's child", **keywords: object) -> Child:
    environment = {**os.environ, **import_path(sys.executable)}
    return Child([sys.executable, "-c", PROGRAM], name=name, environment=environment, **keywords)


@pytest.fixture
def child() -> Iterator[Child]:
    made = start(timeout_s=60)
    yield made
    made.close()


def messages_of(value: object) -> bytes:
    text = pickle.dumps(value)
    return struct.pack("!Q", len(text)) + text


def num_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_answers_come_back_with_the_names_of_errors(child: Child) -> None:
    assert child.call("echo", 1, (2, 3)) == (1, (2, 3))
    with pytest.raises(ConfigError, match="no such thing"):
        child.call("refuse", ConfigError, "no such thing")
    with pytest.raises(MeasurementError, match="ZeroDivisionError: by zero"):
        child.call("refuse", ZeroDivisionError, "by zero")
    with pytest.raises(MeasurementError, match=r"(PicklingError|AttributeError): "):
        child.call("unsendable")
    assert child.call("echo") == ()
    assert child.call("pid") == child.pid


DEATHS = {
    "by itself": (("die", 7), r"exit status 7; its last words: something broke"),
    "killed": (("killed", signal.SIGKILL), r"killed by signal 9 \(SIGKILL\)"),
    "crashed": (("killed", signal.SIGSEGV), r"killed by signal 11 \(SIGSEGV\)"),
    "by a signal without a name": (("killed", 37), r"killed by signal 37$"),
    "amid a message": (("half", "killed", signal.SIGKILL), r"killed by signal 9 \(SIGKILL\)"),
    "while it goes on": (("close_end",), r"it closed its end"),
    "while a fork of it goes on": (("forked", 4), r"exit status 4"),
}


@pytest.mark.parametrize(("call", "how"), DEATHS.values(), ids=DEATHS)
def test_one_that_is_lost(child: Child, call: Sequence[object], how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "END_S", 0.5)
    with pytest.raises(UnitLostError, match=rf"the test's child \(process {child.pid}\) was lost: {how}"):
        child.call(*call)
    assert not child.is_open
    for use in (child.check, lambda: child.call("echo")):
        with pytest.raises(UnitLostError):
            use()


HANGS = {
    "in Python": ("hang",),
    "in a library": ("hold",),
    "stopped": ("killed", signal.SIGSTOP),
    "amid a message": ("half", "hang"),
}


@pytest.mark.parametrize("call", HANGS.values(), ids=HANGS)
def test_one_that_hangs_is_ended(child: Child, call: Sequence[object]) -> None:
    pid = child.call("pid")
    with pytest.raises(UnitLostError, match=r"gave no answer within 0\.2 s; it was ended"):
        child.call(*call, timeout_s=0.2)
    assert not runs(pid)
    child.close()


def test_one_that_takes_nothing_in_is_ended(child: Child) -> None:
    child.send("hang", (), {})
    with pytest.raises(UnitLostError, match=r"gave no answer within 0\.2 s; it was ended"):
        child.send("echo", (bytes(10**7),), {}, timeout_s=0.2)
    assert not child.is_open


GARBAGE = {
    "a length beyond all memory": (b"\1" + bytes(7), "the length of a message, 72,057,594,037,927,936 bytes; at most"),
    "no pickle": (struct.pack("!Q", 4) + b"text", "4 bytes that are no message"),
    "an empty one": (struct.pack("!Q", 0), "0 bytes that are no message"),
    "no tuple": (messages_of([1, 2]), r"'\[1, 2\]', which is no message"),
    "no answer": (messages_of(("fine", 1)), "'fine' for an answer"),
    "no error": (messages_of(("error", 1)), "'error' for an answer"),
}


@pytest.mark.parametrize(("garbage", "what"), GARBAGE.values(), ids=GARBAGE)
def test_one_that_sends_garbage_is_ended(child: Child, garbage: bytes, what: str) -> None:
    with pytest.raises(UnitLostError, match=rf"the test's child .* sent {what}"):
        child.call("send", garbage)
    assert not child.is_open


def test_a_flood_waits_for_its_reader() -> None:
    """Half a gigabyte goes by; what is held is a message, and what the socket holds."""
    child = start(timeout_s=60)
    child.send("flood", (), {})
    child.answer()
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert all(len(child.answer()) == 10**6 for _ in range(500))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 20_000
    child.close()


def test_a_message_that_is_too_large_is_refused_where_it_is_made(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "MAX_BYTES", 10**6)
    with pytest.raises(MeasurementError, match=r"a message of 2,0.* bytes; a process can hand over at most 1,000,000"):
        child.call("echo", bytes(2 * 10**6))
    assert child.call("echo") == ()


def test_what_it_prints_is_no_message_and_is_kept_from_both_ends(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_module, "MAX_OUTPUT_BYTES", 10_000)
    child.call("print", "begin\n", 1)
    child.call("print", "x" * 99 + "\n", 100_000)  # 20 MB, on both streams
    child.call("print", "end\n", 1)
    lines = child.log()
    assert (lines[0], lines[-1]) == ("begin", "end")
    assert sum(map(len, lines)) < 40_000
    (gap,) = (line for line in lines if "left out" in line)
    assert 19_000_000 < int(gap.split()[0].strip("[").replace(",", "")) < 20_000_200


def test_one_that_prints_without_end_is_heard_and_ended(child: Child) -> None:
    child.call("print_for_ever")
    until(lambda: len(child.log()) > 1000)
    assert child.call("echo", 1) == (1,)
    with pytest.raises(UnitLostError, match=r"its last words: .*again and again \| again"):
        child.call("hang", timeout_s=0.2)


def test_last_words_are_short(child: Child) -> None:
    child.call("print", "x" * 10**6 + "\n", 20)
    with pytest.raises(UnitLostError) as raised:
        child.call("die", 3)
    assert 3000 < len(str(raised.value)) < 5000


def test_a_guard_that_is_killed_is_a_child_that_is_lost(child: Child) -> None:
    pid = child.call("pid")
    child._guarded.process.kill()
    with pytest.raises(UnitLostError, match="was lost: killed by signal 9"):
        child.call("hang")
    until(lambda: not runs(pid))


@pytest.mark.parametrize("end", ["close", "die", "killed", "dropped"])
def test_what_it_has_started_ends_with_it(end: str) -> None:
    child = start(timeout_s=60)
    pids = child.call("family")
    assert all(map(runs, pids))
    if end == "close":
        child.close()
    elif end == "dropped":
        del child
    else:
        with pytest.raises(UnitLostError, match="was lost"):
            child.call(*{"die": ("die", 3), "killed": ("killed", signal.SIGKILL)}[end])
    until(lambda: not any(map(runs, pids)))


def test_a_child_holds_its_socket_and_what_it_was_handed_and_its_guard_neither() -> None:
    ours, theirs = os.pipe()
    child = start(timeout_s=60, fds=(theirs,))
    os.close(theirs)
    kinds = sorted(name.partition(":")[0] for name in child.call("open_files"))
    assert kinds == ["pipe", "socket", "socket"]  # the program has its socket twice
    child.call("close_file", theirs)
    until(lambda: select.select([ours], [], [], 0) != ([], [], []))
    assert os.read(ours, 1) == b""
    os.close(ours)
    child.close()


@pytest.mark.parametrize("end", ["close", "killed", "hang"])
def test_no_file_of_the_owner_is_left_open(end: str) -> None:
    before = num_open_files()
    child = start(timeout_s=60)
    child.call("echo")
    if end == "close":
        child.close()
        child.close()
    else:
        with pytest.raises(UnitLostError):
            child.call(*{"killed": ("killed", signal.SIGKILL), "hang": ("hang",)}[end], timeout_s=0.5)
    assert num_open_files() == before


@pytest.mark.parametrize("trouble", ["no such program", "no process", "no such folder"])
def test_one_that_cannot_be_started_leaves_nothing_open(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before, threads = num_open_files(), threading.active_count()
    command, folder = [sys.executable, "-c", ""], None
    if trouble == "no such program":
        command = ["no-such-program"]
    elif trouble == "no such folder":
        folder = Path("no/such/folder")
    else:
        monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(OSError, match=r"No such file|Resource temporarily"):
        Child(command, name="a child", environment=os.environ, folder=folder)
    assert (num_open_files(), threading.active_count()) == (before, threads)


def refuse(*_: object, **__: object) -> None:
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


INTERRUPTED = """
import os, signal, threading
from tests.processes.test_child import start
child = start(timeout_s=60)
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    child.call("hang")
except KeyboardInterrupt:
    print("closed" if not child.is_open else "open")
"""


def test_an_interrupted_call_ends_the_child() -> None:
    """Its answer would be taken for the next one's."""
    environment = {**os.environ, **import_path(sys.executable)}
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.stdout == "closed\n", done.stderr


OWNER = """
import os, signal, sys
from tests.processes.test_child import start
child = start(timeout_s=60)
print(*child.call("family"), flush=True)
child.send(sys.argv[1], tuple(map(eval, sys.argv[2:])), {})
if sys.argv[1] != "echo":
    import time; time.sleep(0.3)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("stage", [("echo",), ("hold",), ("killed", "signal.SIGSTOP"), ("flood",), ("half", "'hang'")])
def test_a_killed_owner_takes_all_of_it_along(stage: Sequence[str]) -> None:
    environment = {**os.environ, **import_path(sys.executable)}
    command = [sys.executable, "-c", OWNER, *stage]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, env=environment)
    pids = list(map(int, done.stdout.split()))
    assert len(pids) == 3
    until(lambda: not any(map(runs, pids)))


def test_an_object_is_hosted() -> None:
    child = hosted("fractions:Fraction.from_float", {}, name="a fraction")
    with pytest.raises(MeasurementError, match=r"has no attribute 'Fraction.from_float'"):
        child.started()
    child.close()
    with_text = hosted("collections:Counter", {"letter": 2}, name="a counter")
    with_text.started()
    assert with_text.call("get", "letter") == 2
    with_text.close()


def test_another_environment_gets_none_of_this_ones_packages() -> None:
    assert "site-packages" not in import_path("/another/bin/python")["PYTHONPATH"]
