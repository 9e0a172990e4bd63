"""Messages between an owner and its child: pickled values over one socket, each behind its length in 8 bytes.

A message is taken in as it comes, so memory grows with what has arrived and never beyond MAX_BYTES; a sender that is
faster than the reader waits. What was read of a message at a timeout is kept, and the next `receive` goes on there.

Worked example: None is the 8 bytes of the number 4, then the pickle b"\\x80\\x04N.".
"""

from __future__ import annotations

import pickle
import select
import socket
import struct
from contextlib import suppress
from time import monotonic
from typing import Any

from pytest_npubench.errors import MeasurementError

MAX_BYTES = 256 * 2**20
"""Of one message: the rounds of a long campaign are some tens of MiB."""
CHUNK_BYTES = 2**20
PROTOCOL = 4  # which every Python reads that a child may run in
POLL_S = 1.0  # an interrupt is heard within this time, whichever thread the system gives it to
_LENGTH = struct.Struct("!Q")


class GarbledError(Exception):
    """What came is no message."""


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
        """The next message. Raises EOFError where the other end is closed, GarbledError where no message came."""
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
