"""A child process that its owner talks to: a fresh interpreter, never a fork.

jax and torch do not survive forks, and children of one fork server would share one layout of memory, while the verdict
takes what several processes measure as independent.

A guard between the two (guard.py) ends the child and all that it has started: when the owner is gone, even by kill -9,
when the child itself has ended, and when the owner closes it, by SIGTERM first. What the child prints is kept, its
beginning and its end; its last lines are the last words in UnitLostError.

Messages between an owner and its child: pickled values over one socket, each behind its length in 8 bytes.

A message is taken in as it comes, so memory grows with what has arrived and never beyond MAX_BYTES; a sender that is
faster than the reader waits. What was read of a message at a timeout is kept, and the next `receive` goes on there.

Worked example: None is the 8 bytes of the number 4, then the pickle b"\x80\x04N.".
"""

from __future__ import annotations

import json
import os
import pickle
import select
import socket
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from pytest_npubench import errors
from pytest_npubench.errors import MeasurementError, NpubenchError, UnitLostError
from pytest_npubench.processes import CHILD
from pytest_npubench.processes.guarded import Guarded, ending

MAX_BYTES = 256 * 2**20
"""Of one message: the rounds of a long campaign are some tens of MiB."""
CHUNK_BYTES = 2**20
PROTOCOL = 4  # which every Python reads that a child may run in
POLL_S = 1.0  # an interrupt is heard within this time, whichever thread the system gives it to
_LENGTH = struct.Struct("!Q")
GRACE_S = 1.0  # between SIGTERM and SIGKILL
END_S = 2.0  # how long a child whose end of the socket is closed may take to end by itself
START_S = 120.0
OWNER = "pytest_npubench.processes.owner"  # a program, too: the child's side of `hosted`
_PACKAGE_FOLDER = Path(errors.__file__).parent.parent
MAX_OUTPUT_BYTES = 4 * 2**20
"""Kept of the beginning, and again of the end: a log of vLLM's start is some 100 KiB."""
LAST_LINES = 8
LINE_LENGTH = 500  # of each of them: a message that nobody can read helps nobody
DRAIN_S = 1.0  # how long the rest is waited for once the process has ended


class GarbledError(Exception):
    """Bytes that are no message."""


class Messages:
    """One end. `send` and `receive` raise TimeoutError after timeout_s (None: never), and OSError where the other end
    is closed."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        self._socket = end
        self._arrived = bytearray()

    def fileno(self) -> int:
        """Can be read once a message, or its first part, has arrived."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, message: object, timeout_s: float | None = None) -> None:
        """Raises MeasurementError for a message that the other side would not take, pickle's errors for another."""
        value = pickle.dumps(message, PROTOCOL)
        if len(value) > MAX_BYTES:
            raise MeasurementError(f"a message of {len(value):,} bytes; a process can hand over at most {MAX_BYTES:,}")
        until_s = _end_s(timeout_s)
        left = memoryview(_LENGTH.pack(len(value)) + value)
        while left:
            try:
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                self._wait(select.POLLOUT, until_s)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Returns the next message. Raises EOFError where the other end is closed, GarbledError where no message
        came."""
        until_s = _end_s(timeout_s)
        self._fill(_LENGTH.size, until_s)
        (num_bytes,) = _LENGTH.unpack_from(self._arrived)
        if num_bytes > MAX_BYTES:
            raise GarbledError(f"the length of a message, {num_bytes:,} bytes; at most {MAX_BYTES:,} are taken")
        self._fill(_LENGTH.size + num_bytes, until_s)
        value, self._arrived = self._arrived, bytearray()
        try:
            return pickle.loads(memoryview(value)[_LENGTH.size :])
        except Exception as error:
            raise GarbledError(f"{num_bytes:,} bytes that are no message ({type(error).__name__}: {error})") from error

    def _fill(self, num_bytes: int, until_s: float | None) -> None:
        """Read until so many bytes are here, and never beyond them."""
        while (missing := num_bytes - len(self._arrived)) > 0:
            try:
                part = self._socket.recv(min(missing, CHUNK_BYTES))
            except BlockingIOError:
                self._wait(select.POLLIN, until_s)
                continue
            if not part:
                raise EOFError
            self._arrived += part

    def _wait(self, event: int, until_s: float | None) -> None:
        poll = select.poll()
        poll.register(self._socket, event)
        while True:
            left_s = POLL_S if until_s is None else until_s - monotonic()
            if poll.poll(1e3 * max(0.0, min(left_s, POLL_S))):
                return
            if until_s is not None and left_s <= 0:
                raise TimeoutError


def _end_s(timeout_s: float | None) -> float | None:
    return None if timeout_s is None else monotonic() + timeout_s


def new_pair() -> tuple[Messages, socket.socket]:
    """(this side's end; the child's, to be closed here once the child has it)."""
    ours, theirs = socket.socketpair()
    with suppress(OSError):  # room for a round's record: whoever measures does not wait for who writes
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, CHUNK_BYTES)
    return Messages(ours), theirs


class Child:
    """A command that takes the number of its end of the socket from the environment (owner.Owner).

    `fds` stay open there under their numbers. timeout_s: of `call` and `answer` that name none. Raises OSError where no
    process can be started. The child leads a session of its own: an interrupt from the keyboard is its owner's to hear.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str,
        environment: Mapping[str, str],
        timeout_s: float = START_S,
        fds: Sequence[int] = (),
        folder: Path | None = None,
    ) -> None:
        self.name, self.timeout_s = name, timeout_s
        self._messages, theirs = new_pair()
        try:
            self._guarded = Guarded(
                command,
                grace_s=GRACE_S,
                env={**environment, CHILD: str(theirs.fileno())},
                folder=folder,
                pass_fds=(*fds, theirs.fileno()),
                is_child=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except BaseException:
            self._messages.close()
            raise
        finally:
            theirs.close()
        self._output = Output(self._guarded.process)
        self._end = weakref.finalize(self, _end, self._guarded, self._messages, self._output)

    @property
    def pid(self) -> int:
        return self._guarded.pid

    @property
    def is_open(self) -> bool:
        return self._end.alive and self._guarded.process.poll() is None

    def fileno(self) -> int:
        """Can be read once there is something to receive, the child's end included."""
        return self._messages.fileno()

    def log(self) -> tuple[str, ...]:
        """Returns the lines that it has written so far; of very many the first and the last."""
        return self._output.lines()

    def send(self, *message: object, timeout_s: float | None = None) -> None:
        """Raises UnitLostError where the child is no more, or takes nothing in for so long (None: the child's own)."""
        if not self._end.alive:
            raise UnitLostError(f"{self.name} was closed")
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        try:
            self._messages.send(message, timeout_s)
        except TimeoutError:
            raise self.hung(timeout_s) from None
        except OSError:
            raise self.lost() from None

    def receive(self, timeout_s: float | None) -> tuple[Any, ...]:
        """Returns the next message; None waits for ever. Raises UnitLostError where the child dies, sends none in time,
        or something else than messages."""
        if not self._end.alive:
            raise UnitLostError(f"{self.name} was closed")
        try:
            message = self._messages.receive(timeout_s)
        except TimeoutError:
            raise self.hung(timeout_s or 0.0) from None
        except GarbledError as error:
            raise self.garbled(str(error)) from None
        except (EOFError, OSError):
            raise self.lost() from None
        if not isinstance(message, tuple) or not message:
            raise self.garbled(f"{str(message)[:200]!r}, which is no message")
        return message

    def answer(self, timeout_s: float | None = None) -> Any:
        """Returns the value of the next message, ("ok", value). Raises the error that it names instead, else as
        receive."""
        kind, *values = self.receive(self.timeout_s if timeout_s is None else timeout_s)
        if kind == "error" and len(values) == 2:
            raise named_error(*values)
        if kind != "ok" or len(values) != 1:
            raise self.garbled(f"{str(kind)[:200]!r} for an answer")
        return values[0]

    def started(self) -> None:
        """The first answer; starting an interpreter with jax or torch may take longer than the work it is for."""
        self.answer(max(self.timeout_s, START_S))

    def call(self, method: str, *arguments: object, timeout_s: float | None = None, **keywords: Any) -> Any:
        """Calls a method that the child serves. Raises as answer."""
        try:
            self.send(method, arguments, keywords, timeout_s=timeout_s)
            return self.answer(timeout_s)
        except NpubenchError:
            raise
        except BaseException:
            self.close()  # interrupted: its answer would be taken for the next one's
            raise

    def check(self) -> None:
        """Raises UnitLostError where the child is no more."""
        if not self.is_open:
            raise self.lost()

    def wait(self, timeout_s: float) -> int | None:
        """Returns the exit status of a child that ends by itself, or the negative signal; None where it is too slow."""
        with suppress(subprocess.TimeoutExpired):
            self._guarded.process.wait(timeout_s)
        return self._guarded.process.poll()

    def hung(self, timeout_s: float) -> UnitLostError:
        """Returns the error for a child that gives no answer; it is ended, since what it does next is unknown."""
        return self._ended(f"gave no answer within {timeout_s:g} s; it was ended")

    def garbled(self, what: str) -> UnitLostError:
        """Returns the error for a child that sends what it should not; it is ended likewise."""
        return self._ended(f"sent {what}; it was ended")

    def lost(self) -> UnitLostError:
        """Returns the error for a child that ended by itself, or was ended."""
        status = self.wait(END_S)
        return self._ended(f"was lost: {'it closed its end' if status is None else ending(status)}")

    def _ended(self, how: str) -> UnitLostError:
        pid = self.pid
        words = self._output.last_words() if self.is_open else ""  # before it says that it was terminated
        self.close()
        return UnitLostError(f"{self.name} (process {pid}) {how}{words or self._output.last_words()}")

    def close(self) -> None:
        """End the child with all that it has started, and wait for that. May be called twice."""
        self._end()


def _end(guarded: Guarded, messages: Messages, output: Output) -> None:
    messages.close()
    guarded.end()
    output.close()


def python_child(
    module: str,
    arguments: Mapping[str, object],
    *,
    name: str,
    fds: Sequence[int] = (),
    timeout_s: float = START_S,
    python: str = sys.executable,
    environment: Mapping[str, str] = {},
) -> Child:
    """`python -m MODULE JSON` in this environment with these variables added; `arguments` are JSON values."""
    return Child(
        [python, "-m", module, json.dumps(arguments)],
        name=name,
        environment={**os.environ, **import_path(python), **environment},
        timeout_s=timeout_s,
        fds=fds,
    )


def hosted(made_by: str, arguments: Mapping[str, object], **keywords: Any) -> Child:
    """Returns a child that serves the object which `made_by`, "MODULE:NAME", makes of the arguments there
    (owner.py)."""
    return python_child(OWNER, {**arguments, "made_by": made_by}, **keywords)


def import_path(python: str) -> dict[str, str]:
    """PYTHONPATH of the child: all of ours for the same interpreter. Another environment gets the folder of this
    package alone, and not where it is a folder of installed packages: what is installed here must not get in its way.
    """
    if python == sys.executable:
        return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return {"PYTHONPATH": "" if _PACKAGE_FOLDER.name.endswith("-packages") else str(_PACKAGE_FOLDER)}


def named_error(name: str, text: str) -> NpubenchError:
    """Returns the child's error with our name, MeasurementError for any other."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, NpubenchError):
        return kind(text)
    return MeasurementError(f"{name}: {text}")


class Output:
    """The output of a process with stdout=subprocess.PIPE, whose stream is closed here."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # it was asked for
        self._stream, process.stdout = process.stdout, None
        os.set_blocking(self._stream.fileno(), False)
        self._first, self._last = bytearray(), bytearray()
        self._num_left_out = 0
        self._is_over = False
        self._reading = threading.Lock()
        self._thread = threading.Thread(target=self._read_on, daemon=True, name="output of a child")
        self._thread.start()

    def lines(self) -> tuple[str, ...]:
        """All lines that the process has printed until now."""
        self._drain()
        with self._reading:
            gap = f"\n[{self._num_left_out:,} bytes left out]\n".encode() if self._num_left_out else b""
            text = bytes(self._first + gap + self._last)
        return tuple(text.decode(errors="replace").splitlines())

    def last_words(self) -> str:
        """Returns the last lines for an error's message; empty where it has printed nothing."""
        lines = [
            line if len(line) <= LINE_LENGTH else f"{line[:LINE_LENGTH]}..." for line in self.lines()[-LAST_LINES:]
        ]
        return "; its last words: " + " | ".join(lines) if lines else ""

    def close(self) -> None:
        """Take in the rest. Whoever of its descendants still holds the pipe keeps it open."""
        self._thread.join(DRAIN_S)
        if not self._thread.is_alive():
            self._stream.close()

    def _read_on(self) -> None:
        poll = select.poll()
        poll.register(self._stream, select.POLLIN)
        while not self._is_over:
            poll.poll()
            self._drain()

    def _drain(self) -> None:
        """Reads all output that is there."""
        with self._reading:
            for _ in range(64):  # whoever prints faster than this is read still does not keep the caller
                if self._is_over:
                    return
                try:
                    part = os.read(self._stream.fileno(), 65536)
                except BlockingIOError:
                    return
                self._is_over = not part
                self._keep(part)

    def _keep(self, part: bytes) -> None:
        room = MAX_OUTPUT_BYTES - len(self._first)
        self._first += part[:room]
        self._last += part[max(0, room) :]
        if len(self._last) > 2 * MAX_OUTPUT_BYTES:
            self._num_left_out += len(self._last) - MAX_OUTPUT_BYTES
            del self._last[:-MAX_OUTPUT_BYTES]
