"""What a process prints, read by a thread as it comes: the first and the last bytes of it are kept, in memory.

A process that prints without end takes no more than that, neither of the owner's memory nor of a disk.
"""

from __future__ import annotations

import os
import select
import subprocess
import threading

MAX_BYTES = 4 * 2**20
"""Kept of the beginning, and again of the end: a log of vLLM's start is some 100 KiB."""
LAST_LINES = 8
LINE_LENGTH = 500  # of each of them: a message that nobody can read helps nobody
DRAIN_S = 1.0  # how long the rest is waited for once the process has ended


class Output:
    """Of a process with stdout=subprocess.PIPE, whose stream is closed here."""

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
        """All that it has printed until now."""
        self._drain()
        with self._reading:
            gap = f"\n[{self._num_left_out:,} bytes left out]\n".encode() if self._num_left_out else b""
            text = bytes(self._first + gap + self._last)
        return tuple(text.decode(errors="replace").splitlines())

    def last_words(self) -> str:
        """The last lines for an error's message; empty where it has printed nothing."""
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
        """Take in what is there."""
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
        room = MAX_BYTES - len(self._first)
        self._first += part[:room]
        self._last += part[max(0, room) :]
        if len(self._last) > 2 * MAX_BYTES:
            self._num_left_out += len(self._last) - MAX_BYTES
            del self._last[:-MAX_BYTES]
