"""Server-sent events out of bytes, however they were cut (WHATWG HTML, section 9.2.6).

Worked example: feed(b'data: {"a"') gives (), then feed(b': 1}\\n\\ndata: [DONE]\\n\\n') gives ('{"a": 1}', '[DONE]').
"""

from __future__ import annotations

from pytest_npubench.errors import MeasurementError

MAX_EVENT_BYTES = 16 * 2**20


class EventStream:
    """Keeps what is not a whole event yet. Only `data` fields matter here; comments and other fields are skipped."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> tuple[str, ...]:
        """The data of every event that `chunk` completes. Raises MeasurementError on an event that is no UTF-8 or
        longer than any answer's."""
        # a CR at the end may be the first half of a CRLF
        text = self._rest + chunk
        held = b"\r" if text.endswith(b"\r") else b""
        lines = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + held
        if len(self._rest) > MAX_EVENT_BYTES:
            raise MeasurementError(f"an event of more than {MAX_EVENT_BYTES} bytes; want JSON of one token or a few")
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
        try:
            return tuple(event.decode() for event in events)
        except UnicodeDecodeError as error:
            raise MeasurementError(f"an event that is no UTF-8: {error}") from error
