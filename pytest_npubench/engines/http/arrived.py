"""What came of one answer: its pieces as they are, each with its time, whose events are read later.

A client that reads events while others arrive times its own reading. So pieces are kept as bytes until the run is over,
and read earlier only

    where they may end the answer in a way of their own: `[DONE]` not by itself, an error, a broken connection
    above ANSWER_BYTES unread of an answer, or ALL_BYTES of all; above half of these, answers that are over are read

A token has the time of the piece that completed its event, whenever it is read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from pytest_npubench.engines.http.delta import DONE, Delta, parse, texts_of
from pytest_npubench.engines.http.repeated import Repeated
from pytest_npubench.errors import MeasurementError

FIELD, OBJECT, BLANK, MARK = b"data: ", b"data: {", b"\n\n", b"\xef\xbb\xbf"
ANSWER_BYTES, ALL_BYTES = 2**18, 2**28
PIECE_BYTES = 128  # what Python keeps beside a piece's bytes: a time, a pair and an object
START_BYTES, MOST_KEYS = 2**10, 4
END, ERROR = DONE.encode(), b'"error"'
ERRORS = (ERROR, b"error:", b"event: error", b"event:error")
LAST = b"\n\ndata: [DONE]\n\n"
"""An event of its own, whatever was before it."""


# Server-sent events out of bytes, however they were cut (WHATWG HTML, section 9.2.6), and none larger than allowed. An
# error that a server tells in another way, by a field or an event named `error` or by JSON in no field at all, is an
# event {"error": ...} here.
#
# Worked example: feed(b'data: {"a"') gives (), then feed(b': 1}\n\ndata: [DONE]\n\n') gives ('{"a": 1}', '[DONE]').
class EventStream:
    """Keeps what is not a whole event yet, at most event_bytes of it. Comments and fields but `data`, `event` and
    `error` are skipped."""

    def __init__(self, event_bytes: int) -> None:
        self._event_bytes = event_bytes
        self._rest = b""
        self._data = bytearray()
        self._num_bytes = 0  # of the event's lines, which are more than its data
        self._is_error = self._is_begun = self._is_after_cr = False

    def feed(self, chunk: bytes) -> tuple[str, ...]:
        """The data of every event that `chunk` completes. Raises MeasurementError on an event, or a line, that is no
        UTF-8 or longer than allowed."""
        if chunk and self._is_after_cr:
            chunk = chunk.removeprefix(b"\n")  # the second half of a CRLF, whose first ended the line
            self._is_after_cr = False
        self._is_after_cr |= chunk.endswith(b"\r")
        text = self._rest + chunk
        if not self._is_begun and len(text) >= len(MARK):
            self._is_begun, text = True, text.removeprefix(MARK)
        lines = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._rest = lines.pop()
        self._check(len(self._rest))
        events = []
        for line in lines:
            if line.startswith(b"data:"):
                self._add(line)
            elif line.startswith(b"event:"):
                self._is_error = line[6:].strip() == b"error"
            elif line.startswith(b"error:"):
                events.append(_error(line[6:].strip()))
            elif line.startswith(b"{") and ERROR in line and _is_error(line):
                events.append(line)
            elif not line:
                if self._num_bytes:
                    events.append(_error(bytes(self._data)) if self._is_error else bytes(self._data))
                self._data.clear()
                self._num_bytes, self._is_error = 0, False
        try:
            return tuple(event.decode() for event in events)
        except UnicodeDecodeError as error:
            raise MeasurementError(f"an event that is no UTF-8: {error}") from error

    def end(self) -> tuple[str, ...]:
        """The event that no blank line ended, where it is `[DONE]` or whole JSON: SSE drops it, and clients in use
        (vLLM's own, guidellm) take it."""
        try:
            events = self.feed(BLANK)
        except MeasurementError:
            return ()
        return tuple(event for event in events if event.strip() == DONE or _is_object(event))

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


def _error(words: bytes) -> bytes:
    try:
        error = json.loads(words)
    except (ValueError, RecursionError):
        error = words.decode(errors="replace")
    return json.dumps({"error": error or "an error in no words"}).encode()


def _is_object(event: str) -> bool:
    try:
        return isinstance(json.loads(event), dict)
    except (ValueError, RecursionError):
        return False


def _is_error(line: bytes) -> bool:
    """Whether a line without a field's name is the JSON of an error; the rest of what stands so is no event."""
    try:
        document = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return bool(document.get("error")) or "error" in (document.get("object"), document.get("type"))


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
    is_sent_again: on a second connection. is_unended: its last event has no blank line. came_as: status and type, and
    start: the first bytes, to show where there is no event. num_empty: the events that were passed over. unknown_keys:
    where text stood that is not known.
    """

    def __init__(self, num_bytes: int, event_bytes: int, num_events: int, unread: Unread) -> None:
        self.deltas: list[tuple[float, Delta]] = []
        self.is_over = False
        self.is_sent_again = self.is_unended = False
        self.came_as, self.start = "", b""
        self.num_events = self.num_empty = 0
        self.unknown_keys: tuple[str, ...] = ()
        self.finish_reason = ""
        self.repeated = Repeated()
        self._done = False  # [DONE] was read, not only seen
        self._most_bytes, self._most_events = num_bytes, num_events
        self._num_bytes = 0
        self._events = EventStream(event_bytes)
        self._total_tokens: int | None = None
        self._read_s = 0.0  # when the last piece that was read came
        self._pieces: list[tuple[float, bytes, bool]] = []  # whether it is one event, and begins where one may
        self._event_bytes = event_bytes
        self._pieces_bytes = 0
        self._all = unread
        self._tail = BLANK  # a beginning is like one
        self._reads_at_once = False

    @property
    def is_whole(self) -> bool:
        return self.is_over or bool(self.finish_reason)

    def add(self, at_s: float, piece: bytes) -> None:
        """Raises MeasurementError where it is read, on what is malformed or over its limits."""
        self._num_bytes += len(piece)
        if len(self.start) < START_BYTES:
            self.start += piece[: START_BYTES - len(self.start)]
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
        error = any(seam.find(sign) >= 0 for sign in ERRORS)
        if seam.endswith(LAST) and not error:
            return True
        self._reads_at_once = error or seam.find(END) >= 0
        return False

    def read(self) -> None:
        """All that came, up to `[DONE]`. Raises MeasurementError as `add` does; what follows is dropped."""
        pieces, self._pieces = self._pieces, []
        self._read_s = pieces[-1][0] if pieces else self._read_s
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

    def end(self) -> None:
        """Nothing more comes. Raises MeasurementError as `add` does."""
        self.read()
        if not self._done:
            for event in self._events.end():
                self._take(event, self._read_s)
                self.is_unended = not self._done

    def _take(self, event: str, at_s: float) -> None:
        self.num_events += 1
        if event.strip() == DONE:
            self._done = self.is_over = True
            return
        try:
            delta = parse(event)
        except MeasurementError as error:
            raise MeasurementError(f"{error} ({self.came_as})" if self.came_as else str(error)) from error
        self.finish_reason = self.finish_reason or delta.finish_reason
        self.num_empty += delta.is_empty
        if delta.unknown_key and delta.unknown_key not in self.unknown_keys and len(self.unknown_keys) < MOST_KEYS:
            self.unknown_keys += (delta.unknown_key,)
        if delta.num_chars and self.repeated.is_possible:
            self.repeated.add(texts_of(event), is_last=bool(delta.finish_reason))
        says_more = delta.total_tokens is not None and delta.total_tokens != self._total_tokens
        if not (delta.num_chars or delta.num_tokens or delta.unstreamed_tokens or says_more):
            return  # a sign of life
        if says_more:
            self._total_tokens = delta.total_tokens
        self.deltas.append((at_s, delta))
        if len(self.deltas) > self._most_events:
            raise MeasurementError(f"malformed stream: more than {self._most_events} events with text or counts")
