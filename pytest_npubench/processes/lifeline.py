"""What the owner of a child process and the child do when the other one ends.

A child holds the reading end of a lifeline, a pipe that nobody writes to: when the owner ends, even by kill -9, the
pipe closes, and the kernel or a thread of the child ends the process. What a child prints goes to a file without a
name; its last lines are the last words in UnitLostError.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
from multiprocessing.connection import Connection
from typing import IO, Any

from pytest_npubench import errors
from pytest_npubench.errors import MeasurementError, NpubenchError

LAST_LINES = 8
_owned: set[int] = set()


def new_lifeline() -> tuple[int, int]:
    """(the reading end, for the child; the owner's end)."""
    reading, end = os.pipe()
    _owned.add(end)
    return reading, end


def cut(end: int) -> None:
    """Close the owner's end. A second call does nothing."""
    if end in _owned:
        _owned.discard(end)
        os.close(end)


def _disown() -> None:
    """In a child made by fork: its copies would keep a lifeline open after its parent has gone."""
    for end in tuple(_owned):
        cut(end)


os.register_at_fork(after_in_child=_disown)


def end_with(lifeline: int) -> None:
    """In the child: end this process once the owner's end of the pipe is closed. No clean-up: there is no one to tidy
    up for.

    The kernel sends the signal (fcntl(2), F_SETSIG), for a library that keeps Python's lock keeps every thread; the
    thread is for an owner that was gone before.
    """
    with contextlib.suppress(OSError):
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    with contextlib.suppress(OSError):
        os.read(lifeline, 1)
    os._exit(0)


def end_process(
    process: subprocess.Popen[bytes],
    connection: Connection[Any, Any],
    lifeline_end: int,
    output: IO[bytes],
    grace_s: float,
) -> None:
    """End a child and wait for it, by force after grace_s."""
    connection.close()
    cut(lifeline_end)  # the child ends now
    try:
        process.wait(grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    output.close()


def last_words(output: IO[bytes]) -> str:
    """The end of what a child wrote, for an error's message; empty where it wrote nothing or was ended before."""
    if output.closed:
        return ""
    output.seek(0)
    lines = output.read().decode(errors="replace").splitlines()[-LAST_LINES:]
    return "; its last words: " + " | ".join(lines) if lines else ""


def named_error(name: str, text: str) -> NpubenchError:
    """The child's error with our name, MeasurementError for any other."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, NpubenchError):
        return kind(text)
    return MeasurementError(f"{name}: {text}")
