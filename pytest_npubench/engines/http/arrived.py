"""What came of one answer: its pieces as they are, each with its time, whose events are read later.

A client that reads events while others arrive times its own reading. So pieces are kept as bytes until the run is over,
and read earlier only

    where they may end the answer in a way of their own: `[DONE]` not by itself, an error, a broken connection
    above ANSWER_BYTES unread of an answer, or ALL_BYTES of all

A token has the time of the piece that completed its event, whenever it is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.engines.http.delta import DONE, Delta, parse
from pytest_npubench.errors import MeasurementError


# Server-sent events out of bytes, however they were cut (WHATWG HTML, section 9.2.6), and none larger than allowed.
#
# Worked example: feed(b'data: {"a"') gives (), then feed(b': 1}\n\ndata: [DONE]\n\n') gives ('{"a": 1}', '[DONE]').
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


ANSWER_BYTES, ALL_BYTES = 2**18, 2**25
PIECE_BYTES = 128  # what Python keeps beside a piece's bytes: a time, a pair and an object
END, ERROR = DONE.encode(), b'"error"'
LAST = b"\n\ndata: [DONE]\n\n"
"""An event of its own, whatever was before it."""


@dataclass(slots=True)
class Unread:
    """num_bytes that all answers of a run hold unread, what Python keeps beside them included."""

    num_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return self.num_bytes > ALL_BYTES


class Arrived:
    """One answer of at most num_bytes and num_events that bring text or a new count, each of event_bytes at most.

    deltas: of the events read so far, with their seconds. is_over: `[DONE]` came; is_whole: that or a finish_reason.
    """

    def __init__(self, num_bytes: int, event_bytes: int, num_events: int, unread: Unread) -> None:
        self.deltas: list[tuple[float, Delta]] = []
        self.is_over = False
        self._finished = False
        self._done = False  # [DONE] was read, not only seen
        self._most_bytes, self._most_events = num_bytes, num_events
        self._num_bytes = 0
        self._events = EventStream(event_bytes)
        self._total_tokens: int | None = None
        self._pieces: list[tuple[float, bytes]] = []
        self._pieces_bytes = 0
        self._all = unread
        self._tail = b""
        self._reads_at_once = False

    @property
    def is_whole(self) -> bool:
        return self.is_over or self._finished

    def add(self, at_s: float, piece: bytes) -> None:
        """Raises MeasurementError where it is read, on what is malformed or over its limits."""
        self._num_bytes += len(piece)
        if self._num_bytes > self._most_bytes:
            self.read()
            raise MeasurementError(f"malformed stream: an answer of more than {self._most_bytes} bytes")
        self._pieces.append((at_s, piece))
        self._pieces_bytes += len(piece) + PIECE_BYTES
        self._all.num_bytes += len(piece) + PIECE_BYTES
        seam = self._tail + piece
        self._tail = seam[1 - len(LAST) :]
        if not self._reads_at_once:
            if seam.endswith(LAST) and ERROR not in seam:
                self.is_over = True
                return
            self._reads_at_once = END in seam or ERROR in seam
        if self._reads_at_once or self._pieces_bytes > ANSWER_BYTES or self._all.is_full:
            self.read()

    def read(self) -> None:
        """All that came, up to `[DONE]`. Raises MeasurementError as `add` does; what follows is dropped."""
        pieces, self._pieces = self._pieces, []
        self._all.num_bytes -= self._pieces_bytes
        self._pieces_bytes = 0
        for at_s, piece in pieces:
            for event in self._events.feed(piece):
                if self._done:
                    return
                self._take(event, at_s)

    def _take(self, event: str, at_s: float) -> None:
        if event == DONE:
            self._done = self.is_over = True
            return
        delta = parse(event)
        self._finished = self._finished or delta.finished
        says_more = delta.total_tokens not in (None, self._total_tokens)
        if not (delta.num_chars or delta.num_tokens or says_more):
            return  # a sign of life
        if says_more:
            self._total_tokens = delta.total_tokens
        self.deltas.append((at_s, delta))
        if len(self.deltas) > self._most_events:
            raise MeasurementError(f"malformed stream: more than {self._most_events} events with text or counts")
