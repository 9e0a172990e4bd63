"""The HTTP/1.1 of one answer: its pieces go to `Arrived`, each with its time, as they are read from a connection.

httptools (llhttp) reads the framing. What it has no bounds for has them here: the head, its headers and trailers.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import httptools

from pytest_npubench.core.server_access import readable, redirected_to, shown
from pytest_npubench.engines.http.arrived import Arrived
from pytest_npubench.errors import MeasurementError

LINE_BYTES, NUM_HEADERS = 8190, 128
TOO_LONG = f"Got more than {LINE_BYTES} bytes when reading a line of the head"
ERROR_BYTES = 4096
ERROR_S, END_S = 2.0, 1.0  # a refusal's own words, and the end behind [DONE], are waited for no longer
LEAST_S = 0.001  # an event loop rounds a shorter time to none


class AnswerError(MeasurementError):
    """An answer that did not come, or not whole. is_unheard: the connection was closed before a byte of it."""

    def __init__(self, reason: str, *, is_unheard: bool = False) -> None:
        super().__init__(reason)
        self.is_unheard = is_unheard


class Reply:
    """What comes on a connection from one request on. `over` is done when nothing more is awaited: with None where the
    answer came, or AnswerError. Behind `[DONE]` that is the rest of the framing, for END_S at most.

    leave(again) is called once, just before: `again` where the connection can carry another request. kept_s: how long
    the server keeps it then, as its Keep-Alive header says.
    """

    __slots__ = (
        "_arrived",
        "_deadline_s",
        "_error",
        "_has_begun",
        "_headers",
        "_idle_s",
        "_in_head",
        "_is_over",
        "_is_whole",
        "_leave",
        "_line_bytes",
        "_loop",
        "_now_s",
        "_num_headers",
        "_parser",
        "_piece_s",
        "_reason",
        "_time_s",
        "_timer",
        "_until_end",
        "_until_s",
        "_words",
        "over",
    )

    def __init__(
        self,
        arrived: Arrived,
        *,
        now_s: Callable[[], float],
        deadline_s: float,
        time_s: float,
        idle_s: float,
        leave: Callable[[bool], None],
    ) -> None:
        """deadline_s on the clock of now_s; time_s what it comes from, for the message."""
        self._arrived, self._now_s, self._leave = arrived, now_s, leave
        self._deadline_s, self._time_s, self._idle_s = deadline_s, time_s, idle_s
        self._parser: httptools.HttpResponseParser | None = httptools.HttpResponseParser(self)
        # servers are as they are: aiohttp takes as much from them
        self._parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._in_head, self._until_end, self._is_whole, self._is_over = True, False, False, False
        self._has_begun = False
        self._error: AnswerError | None = None
        self._line_bytes = self._num_headers = 0
        self._headers: dict[bytes, bytes] = {}
        self._reason = b""
        self._words: bytearray | None = None  # of a refusal
        self._piece_s = now_s()
        self._until_s = deadline_s
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    # from the connection

    def feed(self, data: bytes) -> None:
        """What was read, as it was read. Nothing is nothing: the parser would take it for an end."""
        parser = self._parser
        if parser is None or not data:
            return
        self._piece_s = self._now_s()
        self._has_begun = True
        if self._in_head:
            self._line_bytes += len(data)
        try:
            parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # its status is a refusal
        except httptools.HttpParserError as error:
            self._break(str(error))
        if self._in_head and self._line_bytes > LINE_BYTES:
            self._break(TOO_LONG)
        elif self._is_over:
            self._look()

    def lost(self, error: Exception | None) -> None:
        """The connection is gone, which ends an answer that says no length itself."""
        if self._parser is None:
            return
        if self._is_over:
            self._close()
        elif self._words is not None:
            self._end(self._refusal())
        elif self._until_end:
            self._end(None)
        else:
            why = f"{type(error).__name__}: {error}" if error else "the server closed the connection"
            self._end(AnswerError(f"disconnected: {why}", is_unheard=not self._has_begun))

    @property
    def kept_s(self) -> float | None:
        """Returns how long the connection is kept; None where no header says it."""
        match = re.search(r"timeout\s*=\s*(\d{1,6})", self._header(b"keep-alive"), re.IGNORECASE)
        return float(match[1]) if match else None

    def abandon(self) -> None:
        """Whoever asked waits no longer."""
        self._close()

    # from the parser

    def on_status(self, reason: bytes) -> None:
        """Perhaps a part of it."""
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._line_bytes = 0
        self._num_headers += 1
        if self._num_headers > NUM_HEADERS:
            self._break("Too many headers")
        elif len(name) + len(value) > LINE_BYTES:
            self._break(TOO_LONG)
        elif self._in_head:
            self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        parser = self._parser
        if parser is None:
            return
        status = parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            return
        self._in_head = False
        self._until_end = not self._headers.keys() & {b"content-length", b"transfer-encoding"}
        self._arrived.came_as = f"{self._status()}, {shown(self._header(b'content-type')) or 'of no type'}"
        if status != 200:
            self._words = bytearray()
            self._until_s = min(self._deadline_s, self._piece_s + ERROR_S)
            self._look()
            if 300 <= status < 400 and b"location" in self._headers:
                self._end(self._refusal())
        elif coding := self._coding():
            self._end(AnswerError(f"malformed stream: in the content coding {coding}, which was not asked for"))

    def on_body(self, piece: bytes) -> None:
        if self._is_over:
            return
        if self._words is not None:
            self._words += piece[: ERROR_BYTES - len(self._words)]
            if len(self._words) >= ERROR_BYTES:
                self._end(self._refusal())
            return
        try:
            self._arrived.add(self._piece_s, piece)
        except MeasurementError as error:
            self._end(AnswerError(str(error)))
            return
        if self._arrived.is_over:
            self._until_s = self._piece_s + END_S
            self._is_over = True

    def on_message_complete(self) -> None:
        parser = self._parser
        if parser is None:
            return
        if self._in_head:  # 100 Continue and the like: the answer is still to come
            self._headers.clear()
            self._line_bytes = self._num_headers = 0
            self._reason = b""
            return
        self._is_whole = parser.should_keep_alive()
        if self._words is not None:
            self._end(self._refusal())
        else:
            self._end(None)

    # ends

    def _look(self) -> None:
        """At the time, once it may be over: for the whole, since the last piece, and for what follows an end."""
        if self._timer is not None:
            self._timer.cancel()
        if self._parser is None:
            return
        now_s = self._now_s()
        due_s = self._until_s if self._words is not None else min(self._until_s, self._piece_s + self._idle_s)
        if now_s < due_s:
            self._timer = self._loop.call_later(max(due_s - now_s, LEAST_S), self._look)
        elif self._is_over:
            self._close()
        elif self._words is not None:
            self._end(self._refusal())
        elif now_s >= self._deadline_s:
            self._end(AnswerError(f"timed out: no whole answer in {self._time_s:g} s"))
        else:
            self._end(AnswerError(f"timed out: nothing came for {self._idle_s:g} s"))

    def _break(self, why: str) -> None:
        self._end(AnswerError(f"malformed stream: no answer in HTTP: {shown(why)}"))

    def _end(self, error: AnswerError | None) -> None:
        if not self._is_over:
            self._is_over = True
            self._error = error
        self._close()

    def _close(self) -> None:
        """No circle is left: nothing is collected while a run lasts."""
        if self._parser is None:
            return
        self._parser = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        leave, is_whole = self._leave, self._is_whole
        del self._leave
        leave(is_whole)
        if self.over.done():
            return  # whoever asked was cancelled
        if self._error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(self._error)

    def _refusal(self) -> AnswerError:
        assert self._parser is not None
        assert self._words is not None
        code, status = self._parser.get_status_code(), self._status()
        if 300 <= code < 400 and (location := self._header(b"location")):
            return AnswerError(f"{status}: redirects to {redirected_to(location)}, and no redirect is followed")
        coding = self._coding()
        text = (
            f"words in the content coding {coding}" if coding else readable(self._words, self._header(b"retry-after"))
        )
        return AnswerError(f"{self._arrived.came_as}: {text}")

    def _status(self) -> str:
        assert self._parser is not None
        reason = shown(self._reason.decode(errors="surrogateescape"))
        return f"HTTP {self._parser.get_status_code()} {reason}".rstrip()

    def _coding(self) -> str:
        """Empty for none."""
        coding = shown(self._header(b"content-encoding"))
        return "" if coding.lower() == "identity" else coding

    def _header(self, name: bytes) -> str:
        return self._headers.get(name, b"").decode(errors="surrogateescape")
