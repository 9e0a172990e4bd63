"""A child process that its owner talks to: a fresh interpreter, never a fork, since jax and torch do not survive forks.

It talks over one socket and holds the reading end of a *lifeline*, a pipe that nobody writes to: when the owner ends,
even by kill -9, the pipe closes, and the kernel or a thread of the child ends the process. (A parent-death signal would
do the same, but it fires as soon as the owner's *thread* ends.) What the child prints goes to a file without a name;
its last lines are the last words in UnitLostError.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import IO, Any

from pytest_npubench.errors import NpubenchError, UnitLostError
from pytest_npubench.processes.lifeline import end_process, end_with, last_words, named_error, new_lifeline

Ends = Mapping[str, int]
"""The numbers of the child's ends of socket and lifeline, which are open there: connection_fd and lifeline_fd."""


class Child:
    """`command(ends)` is the child's command line and environment; `fds` stay open there under their numbers.

    The child leads a session of its own: an interrupt from the keyboard is its owner's to hear.
    """

    def __init__(
        self,
        command: Callable[[Ends], tuple[Sequence[str], Mapping[str, str]]],
        *,
        name: str,
        grace_s: float,
        fds: Sequence[int] = (),
        folder: Path | None = None,
    ) -> None:
        self.name = name
        self._grace_s = grace_s
        self.connection, theirs = Pipe()
        lifeline, self._lifeline_end = new_lifeline()
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        try:
            arguments, environment = command({"connection_fd": theirs.fileno(), "lifeline_fd": lifeline})
            self._process = subprocess.Popen(
                arguments,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                pass_fds=(*fds, theirs.fileno(), lifeline),
                env=dict(environment),
                start_new_session=True,
            )
        finally:
            os.close(lifeline)
            theirs.close()
        self._end = weakref.finalize(
            self, end_process, self._process, self.connection, self._lifeline_end, self._output, grace_s
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_open(self) -> bool:
        return self._end.alive and self._process.poll() is None

    def log(self) -> tuple[str, ...]:
        """The lines it has written so far; read past the offset, which it writes on at. Empty once it is closed."""
        if self._output.closed:
            return ()
        number = self._output.fileno()
        text = os.pread(number, os.fstat(number).st_size, 0)
        return tuple(text.decode(errors="replace").splitlines())

    def send(self, *message: object) -> None:
        """Raises UnitLostError where the child is no more."""
        if not self._end.alive:
            raise UnitLostError(f"{self.name} was closed")
        try:
            self.connection.send(message)
        except OSError:
            raise self.lost() from None

    def has_message(self, timeout_s: float) -> bool:
        """Whether a message, or the child's end, can be received; waits for it so long at most."""
        return self.connection.poll(timeout_s)

    def wait(self, timeout_s: float) -> None:
        """Let the child end by itself, for so long at most."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)

    def receive(self, timeout_s: float | None) -> Any:
        """The next message; None waits for ever. Raises UnitLostError where the child dies or sends none in time."""
        try:
            if not self.connection.poll(timeout_s):
                raise self.hung(timeout_s or 0.0)
            return self.connection.recv()
        except (EOFError, OSError):
            raise self.lost() from None

    def answer(self, timeout_s: float) -> Any:
        """What stands in the next message ("ok", value). Raises the error that it names instead, else as receive."""
        kind, value = self.receive(timeout_s)
        if kind == "error":
            raise named_error(*value)
        return value

    def call(self, *message: object, timeout_s: float) -> Any:
        """Send a message and return its answer. Raises as answer."""
        try:
            self.send(*message)
            return self.answer(timeout_s)
        except NpubenchError:
            raise
        except BaseException:
            self.close(grace_s=0.0)  # interrupted: its answer would be taken for the next one's
            raise

    def hung(self, timeout_s: float) -> UnitLostError:
        """The error for a child that gives no answer; it is ended, since what it does next is unknown."""
        words = last_words(self._output)
        self.close(grace_s=0.0)
        return UnitLostError(
            f"{self.name} (process {self.pid}) gave no answer within {timeout_s:g} s; it was ended{words}"
        )

    def lost(self) -> UnitLostError:
        """The error for a child that ended by itself, or was ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(self._grace_s)
        code, words = self._process.poll(), last_words(self._output)
        self.close(grace_s=0.0)
        how = f"killed by signal {-code}" if code is not None and code < 0 else f"exit status {code}"
        return UnitLostError(f"{self.name} (process {self.pid}) was lost: {how}{words}")

    def close(self, *, grace_s: float | None = None) -> None:
        """End the process and wait for it, by force after grace_s. May be called twice."""
        if self._end.detach() is not None:
            grace_s = self._grace_s if grace_s is None else grace_s
            end_process(self._process, self.connection, self._lifeline_end, self._output, grace_s)


class Owner:
    """The other end, in the child: where messages come from and answers go."""

    def __init__(self, ends: Mapping[str, Any]) -> None:
        self.connection: Connection[Any, Any] = Connection(ends["connection_fd"])
        lifeline = ends["lifeline_fd"]
        threading.Thread(target=end_with, args=(lifeline,), daemon=True, name="lifeline").start()

    def answer(self, value: object) -> None:
        self.connection.send(("ok", value))

    def answer_error(self, error: Exception) -> None:
        self.connection.send(("error", (type(error).__name__, str(error))))
