"""A child process of our own: how it starts, how it learns that its owner is gone, how the owner learns that it is.

A child is a fresh interpreter (`python -m MODULE JSON`), never a fork: jax and torch do not survive forks. It talks
over one socket. It holds the reading end of a *lifeline*, a pipe that nobody writes to: when the owner ends, even by
kill -9, the pipe closes and a thread of the child ends the process. (A parent-death signal would do the same, but it
fires as soon as the owner's *thread* ends.) What the child prints goes to a file without a name; its last lines are
the last words in UnitLostError.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

from pytest_npubench.errors import DeviceUnavailableError, NpubenchError, UnitLostError
from pytest_npubench.lifeline import end_process, end_with, last_words, named_error

GRACE_S = 2.0
START_S = 120.0


class ChildProcess:
    """Runs MODULE in a process of its own. `arguments`: JSON values; `fds` stay open there under their numbers."""

    def __init__(
        self, module: str, arguments: Mapping[str, object], *, name: str, fds: Sequence[int] = (), timeout_s: float
    ) -> None:
        self.name = name
        self.timeout_s = timeout_s
        self.connection, theirs = Pipe()
        lifeline, self._lifeline_end = os.pipe()
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        handed = {**arguments, "connection_fd": theirs.fileno(), "lifeline_fd": lifeline, "name": name}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(handed)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            pass_fds=(*fds, theirs.fileno(), lifeline),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        os.close(lifeline)
        theirs.close()
        self._end = weakref.finalize(
            self, end_process, self._process, self.connection, self._lifeline_end, self._output, GRACE_S
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def call(self, *message: object, timeout_s: float | None = None) -> Any:
        """Send a message and return the answer. Raises the child's named error, UnitLostError where none comes."""
        try:
            self.send(*message)
            return self.answer(timeout_s)
        except NpubenchError:
            raise
        except BaseException:
            self.close(grace_s=0.0)  # interrupted: its answer would be taken for the next one's
            raise

    def send(self, *message: object) -> None:
        if not self._end.alive:
            raise UnitLostError(f"{self.name} was closed")
        try:
            self.connection.send(message)
        except OSError:
            raise self.lost() from None

    def answer(self, timeout_s: float | None = None) -> Any:
        limit_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            if not self.connection.poll(limit_s):
                raise self.hung(limit_s)
            kind, value = self.connection.recv()
        except (EOFError, OSError):
            raise self.lost() from None
        if kind == "error":
            raise named_error(*value)
        return value

    def started(self) -> Any:
        """The first answer; starting an interpreter with jax or torch may take longer than the work it is for."""
        return self.answer(max(self.timeout_s, START_S))

    def check(self) -> None:
        """Raises UnitLostError where the child is no more."""
        if not self._end.alive or self._process.poll() is not None:
            raise self.lost()

    def hung(self, limit_s: float) -> UnitLostError:
        """The error for a child that gives no answer; it is ended, since what it does next is unknown."""
        words = last_words(self._output)
        self.close(grace_s=0.0)
        return UnitLostError(
            f"{self.name} (process {self.pid}) gave no answer within {limit_s:g} s; it was ended{words}"
        )

    def lost(self) -> UnitLostError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        code, words = self._process.poll(), last_words(self._output)
        self.close(grace_s=0.0)
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        return UnitLostError(f"{self.name} (process {self.pid}) was lost: {how}{words}")

    def close(self, *, grace_s: float = GRACE_S) -> None:
        """End the process and wait for it, by force after grace_s. May be called twice."""
        if self._end.detach() is not None:
            end_process(self._process, self.connection, self._lifeline_end, self._output, grace_s)


class Owner:
    """The other end, in the child: where messages come from and answers go."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.connection: Connection[Any, Any] = Connection(arguments["connection_fd"])
        lifeline = arguments["lifeline_fd"]
        threading.Thread(target=end_with, args=(lifeline,), daemon=True, name="lifeline").start()

    def answer(self, value: object) -> None:
        self.connection.send(("ok", value))

    def answer_error(self, error: Exception) -> None:
        self.connection.send(("error", (type(error).__name__, str(error))))


def pin_to(core: int) -> None:
    """Keep this process on one core. Raises DeviceUnavailableError where the system does not let it."""
    try:
        os.sched_setaffinity(0, {core})
    except (OSError, AttributeError) as error:
        raise DeviceUnavailableError(f"cannot pin process {os.getpid()} to core {core}: {error}") from None


def two_cores(cores: tuple[int, int] | None = None) -> tuple[int, int]:
    """The cores for two units: those asked for, else the last two this process may use (the first ones serve the
    system's interrupts). Raises DeviceUnavailableError where there are fewer than two."""
    if not hasattr(os, "sched_getaffinity"):
        raise DeviceUnavailableError(
            f"a pair of units pins its processes to cores, which {sys.platform} does not offer"
        )
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise DeviceUnavailableError(f"a pair of units needs 2 cores; this process may use {len(usable)} ({usable})")
    if cores is None:
        return usable[-2], usable[-1]
    if len(set(cores)) < 2 or not set(cores) <= set(usable):
        raise DeviceUnavailableError(f"cores {cores}: want two different ones of {usable}")
    return cores
