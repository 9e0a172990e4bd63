"""What came of one answer: its pieces as they are, each with its time, whose events are read later.

A client that reads events while others arrive times its own reading. So pieces are kept as bytes until the run is over,
and read earlier only

    where they may end the answer in a way of their own: `[DONE]` not by itself, an error, a broken connection
    above ANSWER_BYTES unread of an answer, or ALL_BYTES of all; above half of these, answers that are over are read

A token has the time of the piece that completed its event, whenever it is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.engines.http.delta import DONE, Delta, parse
from pytest_npubench.errors import MeasurementError

FIELD, OBJECT, BLANK = b"data: ", b"data: {", b"\n\n"
ANSWER_BYTES, ALL_BYTES = 2**18, 2**28
PIECE_BYTES = 128  # what Python keeps beside a piece's bytes: a time, a pair and an object
END, ERROR = DONE.encode(), b'"error"'
LAST = b"\n\ndata: [DONE]\n\n"
"""An event of its own, whatever was before it."""


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
        half_break = b"\r" if text.endswith(b"\r") else b""
        lines = text[: len(text) - len(half_break)].replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop() + half_break
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


@dataclass(slots=True)
class Unread:
    """num_bytes that all answers of a run hold unread, what Python keeps beside them included."""

    num_bytes: int = 0

    @property
    def is_full(self) -> bool:
        return self.num_bytes > ALL_BYTES

    @property
    def is_half_full(self) -> bool:
        return self.num_bytes > ALL_BYTES // 2


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
        self._pieces: list[tuple[float, bytes, bool]] = []  # whether it is one event, and begins where one may
        self._event_bytes = event_bytes
        self._pieces_bytes = 0
        self._all = unread
        self._tail = BLANK  # a beginning is like one
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
        is_event = self._is_event(piece)
        self._pieces.append((at_s, piece, is_event))
        self._pieces_bytes += len(piece) + PIECE_BYTES
        self._all.num_bytes += len(piece) + PIECE_BYTES
        if not is_event and not self._reads_at_once and self._is_last(piece):
            self.is_over = True
            return
        if self._reads_at_once or self._pieces_bytes > ANSWER_BYTES or self._all.is_full:
            self.read()

    def _is_event(self, piece: bytes) -> bool:
        """The usual piece: an event, whole and with nothing beside it, that is neither an end nor an error. Of most
        answers all but the last are such, and there is nothing to look for in them."""
        return (
            piece.startswith(OBJECT)
            and piece.find(b"\n") == len(piece) - 2
            and piece.endswith(b"\n")
            and piece.find(ERROR) < 0  # `in` is slow: it asks first whether ERROR is a number
            and piece.find(b"\r") < 0
            and self._tail == BLANK
            and not self._reads_at_once
            and len(piece) <= self._event_bytes
        )

    def _is_last(self, piece: bytes) -> bool:
        """Whether the answer ends with it as most do. What may be another end, or an error, is read at once."""
        seam = self._tail + piece
        self._tail = BLANK if seam.endswith(BLANK) else seam[1 - len(LAST) :]
        error = seam.find(ERROR) >= 0
        if seam.endswith(LAST) and not error:
            return True
        self._reads_at_once = error or seam.find(END) >= 0
        return False

    def read(self) -> None:
        """All that came, up to `[DONE]`. Raises MeasurementError as `add` does; what follows is dropped."""
        pieces, self._pieces = self._pieces, []
        self._all.num_bytes -= self._pieces_bytes
        self._pieces_bytes = 0
        for at_s, piece, is_event in pieces:
            if is_event and piece.isascii() and not self._done:
                self._take(piece[len(FIELD) : -2].decode(), at_s)
                continue
            for event in self._events.feed(piece):
                if self._done:
                    return
                self._take(event, at_s)

    def _take(self, event: str, at_s: float) -> None:
        if event == DONE:
            self._done = self.is_over = True
            return
        delta = parse(event)
        num_chars, num_tokens, total_tokens, finished = delta
        self._finished = self._finished or finished
        says_more = total_tokens is not None and total_tokens != self._total_tokens
        if not (num_chars or num_tokens or says_more):
            return  # a sign of life
        if says_more:
            self._total_tokens = total_tokens
        self.deltas.append((at_s, delta))
        if len(self.deltas) > self._most_events:
            raise MeasurementError(f"malformed stream: more than {self._most_events} events with text or counts")
