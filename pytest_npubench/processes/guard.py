"""The process between an owner and a command of its own: `guard.py LIFELINE LIMIT_S GRACE_S KIND COMMAND...`.

It runs the command and passes its exit status on. It ends the command, and everything that the command has started,
once the owner is gone, which closes the lifeline, a socket that the owner never writes to; or once the limit is over,
whatever the owner does then, be it stopped. It is a process and no thread of the command's, so that it works whatever
holds the command: a library that never returns, a signal that stops it, a program that is none of ours.

KIND "command" is somebody's program: it is interrupted before it is killed, and may leave a daemon behind. "child" is a
process of ours (child.py): it is terminated before, and what it has started ends with it. The guard lets go of the
files that it was handed for a child, so that each of them closes when the child ends.

As a subreaper (prctl(2)) it becomes the parent of every descendant whose own parent ends, so it finds them all. Told to
interrupt or to end, it tells the command. It imports nothing of the package, and not `site`: it starts in 25 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
from time import monotonic, sleep

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
END_S = 5.0  # how long a killed process may take to go; one that a driver holds does not go at all
LIMIT_OVER = signal.SIGALRM  # what the guard dies of where the limit was over


def main(lifeline: int, limit_s: float, grace_s: float, is_child: bool, command: list[str]) -> None:
    os.set_inheritable(lifeline, False)
    ended, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    child = os.fork()
    if child == 0:
        _become(command, guard)
    with contextlib.suppress(OSError):  # the owner is gone
        os.write(lifeline, b"%d\n" % child)
    if is_child:
        _close_all_but(lifeline, ended, wake)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: _tell(child, number))
    status = _watch(child, lifeline, ended, limit_s)
    if status is None:
        if grace_s > 0:
            _tell(child, signal.SIGTERM if is_child else signal.SIGINT)
            status = _wait(child, ended, grace_s)
        _end_all()
    elif is_child:
        _end_all()
    _leave_as(int(LIMIT_OVER) if status is None else status)


def _close_all_but(*kept: int) -> None:
    for number in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - as below
        if number > 2 and number not in kept:
            with contextlib.suppress(OSError):  # the listing's own
                os.close(number)


def _become(command: list[str], guard: int) -> None:
    """Turns a forked child into the command, which does not outlive its guard."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        if os.getppid() == guard:
            os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.stderr.flush()
    os._exit(127)


def _watch(child: int, lifeline: int, ended: int, limit_s: float) -> int | None:
    """Returns the child's wait status; None where the owner is gone or the limit over first."""
    ends_s = monotonic() + limit_s
    while True:
        if (status := _reaped(child)) is not None:
            return status
        left_s = ends_s - monotonic()
        if left_s <= 0:
            return None
        ready = _ready([lifeline, ended], left_s)
        if lifeline in ready:
            return None
        if ended in ready:
            os.read(ended, 4096)


def _wait(child: int, ended: int, limit_s: float) -> int | None:
    """Returns the child's wait status, whichever process ends meanwhile; None where it does not end in time."""
    ends_s = monotonic() + limit_s
    while (status := _reaped(child)) is None and (left_s := ends_s - monotonic()) > 0:
        if _ready([ended], left_s):
            os.read(ended, 4096)
    return status


def _ready(numbers: list[int], timeout_s: float) -> list[int]:
    """Returns the descriptors that are readable or closed at their other end, after timeout_s or a day at most."""
    poll = select.poll()  # unlike select(2) for descriptors of any number
    for number in numbers:
        poll.register(number, select.POLLIN)
    return [number for number, _ in poll.poll(1e3 * min(timeout_s, 86400.0))]


def _reaped(child: int) -> int | None:
    """Returns the child's wait status once it has ended. Descendants that were left to us are reaped on the way."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return None
        if pid == child:
            return status
        if pid == 0:
            return None


def _end_all() -> None:
    """Kill what is below this process until nothing is."""
    ends_s = monotonic() + END_S
    while monotonic() < ends_s:
        for pid in _children(os.getpid()):
            _tell(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        sleep(0.005)


def _tell(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):  # it has ended, or has become another user's
        os.kill(pid, number)


def _children(parent: int) -> list[int]:
    children = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib takes longer to import than the rest
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - likewise
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == parent:
                children.append(int(name))
    return children


def _leave_as(status: int) -> None:
    """End as the command did: its exit status, or its signal, without a core of our own."""
    if os.WIFSIGNALED(status):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), sys.argv[4] == "child", sys.argv[5:])
