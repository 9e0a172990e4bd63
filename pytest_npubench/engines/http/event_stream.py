"""Server-sent events out of bytes, however they were cut (WHATWG HTML, section 9.2.6), and none larger than allowed.

Worked example: feed(b'data: {"a"') gives (), then feed(b': 1}\\n\\ndata: [DONE]\\n\\n') gives ('{"a": 1}', '[DONE]').
"""

from __future__ import annotations

from pytest_npubench.errors import MeasurementError


class EventStream:
    """Keeps what is not a whole event yet, at most event_bytes of it. Only `data` fields matter here; comments and
    other fields are skipped."""

    def __init__(self, event_bytes: int) -> None:
        self._event_bytes = event_bytes
        self._rest = b""
        self._data = bytearray()
        self._num_bytes = 0  # of the event's lines, which are more than its data

    def feed(self, chunk: bytes) -> tuple[str, ...]:
        """The data of every event that `chunk` completes. Raises MeasurementError on an event, or a line, that is no
        UTF-8 or longer than allowed."""
        # a CR at the end may be the first half of a CRLF
        text = self._rest + chunk
        held = b"\r" if text.endswith(b"\r") else b""
        lines = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + held
        self._check(len(self._rest))
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._add(line)
            elif not line and self._num_bytes:
                events.append(bytes(self._data))
                self._data.clear()
                self._num_bytes = 0
        try:
            return tuple(event.decode() for event in events)
        except UnicodeDecodeError as error:
            raise MeasurementError(f"an event that is no UTF-8: {error}") from error

    def _add(self, line: bytes) -> None:
        """Several `data` fields of an event are lines of one text."""
        if self._num_bytes:
            self._data += b"\n"
        self._data += line[5:].removeprefix(b" ")
        self._num_bytes += len(line)
        self._check(self._num_bytes)

    def _check(self, num_bytes: int) -> None:
        if num_bytes > self._event_bytes:
            raise MeasurementError(f"an event of more than {self._event_bytes} bytes; want JSON of one token or a few")
