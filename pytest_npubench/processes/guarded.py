"""Commands that end with their owner and at their limit, with all that they have started (guard.py is what sees to it).

`run` is subprocess.run for a question with an answer: a probe, a vendor's program, a fresh pytest. `Guarded` is
subprocess.Popen for what is listened to while it works, a Child among them (child.py).

The guard holds one end of a *lifeline*, a socket that the owner never writes to: when the owner ends, even by kill -9,
the kernel closes the other end. (A parent-death signal would do the same, but it fires as soon as the owner's *thread*
ends.)
"""

from __future__ import annotations

import errno
import math
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import which
from time import monotonic
from typing import Any

from pytest_npubench.processes import guard

GUARD = Path(guard.__file__)
OVER_S = guard.END_S + 5.0  # how long a guard is waited for that does not end: then it is left to itself
POLL_S = 0.1
MAX_BYTES = 4 * 2**20
"""What is kept of an output, its end: answers are kilobytes."""
_owned: set[int] = set()
"""The owner's ends of all lifelines."""


class Guarded:
    """A command at work, in a session of its own: an interrupt from the keyboard is its owner's to hear.

    Once its owner is gone it is interrupted and, after grace_s, killed; at its limit likewise. Raises FileNotFoundError
    where there is no such program, OSError where no process can be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        limit_s: float = math.inf,
        grace_s: float = 0.0,
        env: Mapping[str, str] | None = None,
        folder: Path | None = None,
        pass_fds: Sequence[int] = (),
        is_child: bool = False,
        **streams: Any,
    ) -> None:
        environment = dict(os.environ if env is None else env)
        if which(command[0], path=environment.get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        lifeline, end = (one.detach() for one in socket.socketpair())
        _owned.add(end)
        kind = "child" if is_child else "command"
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-I", "-S", str(GUARD), str(lifeline), str(limit_s), str(grace_s), kind, *command],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=(*pass_fds, lifeline),
                start_new_session=True,
                **streams,
            )
        except BaseException:
            _cut(end)
            raise
        finally:
            os.close(lifeline)
        self._lifeline_end, self._pid = end, 0
        self._end = weakref.finalize(self, _end, self.process, end, grace_s)

    @property
    def pid(self) -> int:
        """Returns the pid of the command's own process, which its guard reports; the guard's where that failed."""
        if not self._pid and self._end.alive:
            ready = select.poll()
            ready.register(self._lifeline_end, select.POLLIN)
            said = os.read(self._lifeline_end, 32) if ready.poll(1e3 * OVER_S) else b""
            self._pid = int(said) if said.endswith(b"\n") else self.process.pid
        return self._pid or self.process.pid

    def end(self) -> None:
        """End the command and what it has started, and wait for that. May be called twice."""
        self._end()


def _cut(end: int) -> None:
    """Close the owner's end of a lifeline. A second call does nothing."""
    if end in _owned:
        _owned.discard(end)
        os.close(end)


def _disown() -> None:
    """Closes the copies that a fork made: they would keep a lifeline open after the owner has gone."""
    for end in tuple(_owned):
        _cut(end)


os.register_at_fork(after_in_child=_disown)


def _end(process: subprocess.Popen[bytes], lifeline_end: int, grace_s: float) -> None:
    _cut(lifeline_end)  # its guard ends it now
    try:
        process.wait(grace_s + OVER_S)
    except subprocess.TimeoutExpired:
        process.kill()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def run(
    command: Sequence[str], *, limit_s: float, env: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. Its output is the end of it where it is long.

    Raises subprocess.TimeoutExpired where it takes longer than limit_s, and OSError as Guarded does.
    """
    guarded = Guarded(command, limit_s=limit_s, env=env, folder=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process = guarded.process
    started_s = monotonic()
    try:
        outputs = _read(process, started_s + limit_s + OVER_S)
        status = process.poll()
    finally:
        guarded.end()
    if status is None or (status == -guard.LIMIT_OVER and monotonic() - started_s >= limit_s):
        raise subprocess.TimeoutExpired(command, limit_s)
    stdout, stderr = (bytes(output).decode(errors="replace") for output in outputs)
    return subprocess.CompletedProcess(command, status, stdout, stderr)


def _read(process: subprocess.Popen[bytes], until_s: float) -> tuple[bytearray, bytearray]:
    """Returns the output of the process until it ends: a descendant may keep its pipes open for longer."""
    assert process.stdout is not None  # it was asked for
    assert process.stderr is not None
    outputs = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        for number in outputs:
            selector.register(number, selectors.EVENT_READ)
        while selector.get_map() and monotonic() < until_s:
            has_ended = process.poll() is not None
            ready = selector.select(0 if has_ended else POLL_S)
            for key, _ in ready:
                part = os.read(key.fd, 65536)
                if not part:
                    selector.unregister(key.fd)
                outputs[key.fd] += part
                if len(outputs[key.fd]) > 2 * MAX_BYTES:
                    del outputs[key.fd][:-MAX_BYTES]
            if has_ended and not ready:
                break
    with suppress(subprocess.TimeoutExpired):
        process.wait(max(0.0, until_s - monotonic()))
    first, second = outputs.values()
    return first, second


def ending(status: int) -> str:
    """How a process ended, in words: "exit status 3", "killed by signal 9 (SIGKILL)"."""
    if status >= 0:
        return f"exit status {status}"
    try:
        name = f" ({signal.Signals(-status).name})"
    except ValueError:  # of a number that has no name here
        name = ""
    return f"killed by signal {-status}{name}"
