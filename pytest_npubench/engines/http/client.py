"""One request to an OpenAI-compatible server: sent, read piece by piece, timed, and every way it can fail named.

No redirect is followed, and nothing that is packed is unpacked. What a request may take is bounded by `limits`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_npubench.core.server_access import readable, shown
from pytest_npubench.engines.http.answer import (
    ENDED_EARLY,
    PASSED_OVER,
    REPEATED,
    SENT_AGAIN,
    UNENDED,
    UNKNOWN_TEXT,
    UNSTREAMED,
    HttpAnswer,
    HttpRequest,
)
from pytest_npubench.engines.http.arrived import Arrived, Unread
from pytest_npubench.engines.http.connections import Connections
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.reply import AnswerError
from pytest_npubench.engines.http.token_times import TokenTimes, in_digits, token_times
from pytest_npubench.errors import MeasurementError

TOKEN_S, LONGEST_S = 5.0, 600.0
ANSWER_BYTES, TOKEN_BYTES = 2**19, 2**14
EVENT_BYTES, EVENT_TOKEN_BYTES = 2**18, 2**8
NUM_EVENTS, TOKEN_EVENTS = 64, 4
REASON_CHARS = 400


# What one answer may take, in time, bytes and events: derived from what was asked for, so that no server decides it.
#
#     time     connect_timeout_s + idle_timeout_s + 5 s a token, at most 600 s; or answer_timeout_s where that is given.
#     bytes    512 KiB + 16 KiB a token: an event of one token is 0.3 KiB, with twenty log-probabilities 3 KiB
#     event    256 KiB + 256 bytes a token: a proxy may merge a whole answer into one
#     events   64 + 4 a token, of those that bring text or a new count: what is kept of an answer
#
# Worked example: 16 tokens and the default times of an endpoint (10 and 60 s) have 150 s, 768 KiB, events of up to
# 260 KiB, and 128 of them.
@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """time_s from the first sending to the last byte; event_bytes of one event or line."""

    time_s: float
    num_bytes: int
    event_bytes: int
    num_events: int


def answer_limits(endpoint: Endpoint, output_tokens: int) -> AnswerLimits:
    derived_s = endpoint.connect_timeout_s + endpoint.idle_timeout_s + TOKEN_S * output_tokens
    return AnswerLimits(
        time_s=min(derived_s, LONGEST_S) if endpoint.answer_timeout_s is None else endpoint.answer_timeout_s,
        num_bytes=ANSWER_BYTES + TOKEN_BYTES * output_tokens,
        event_bytes=EVENT_BYTES + EVENT_TOKEN_BYTES * output_tokens,
        num_events=NUM_EVENTS + TOKEN_EVENTS * output_tokens,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A request whose answer is over, its events read or not. failed: how the transport failed. may_end_early: the
    server was not asked to go on to the last token. keys: hidden where the server sent them back."""

    request: HttpRequest
    dispatched_s: float
    arrived: Arrived
    failed: str | None
    may_end_early: bool = False

    def answer(self) -> HttpAnswer:
        """Reads what was not read yet: what the events and their tokens tell is found out here."""
        failed, times = self.failed, None
        try:
            self.arrived.read()
        except MeasurementError as error:
            failed = str(error)
        try:
            arrived = self.arrived
            deltas = arrived.repeated.without(arrived.deltas) if arrived.repeated.is_certain else arrived.deltas
            times = token_times(deltas, self.request.output_tokens)
            num_tokens = times.num_tokens + times.num_unstreamed
            if num_tokens != self.request.output_tokens and not self._ended_early(times):
                came = f"{in_digits(num_tokens)} tokens came"
                failed = failed or f"{came}, {self.request.output_tokens} were asked for"
            if not times.num_tokens:
                failed = failed or f"{in_digits(num_tokens)} tokens were counted, and none was streamed"
        except MeasurementError as error:
            failed = failed or str(error)
        return HttpAnswer(
            request=self.request,
            dispatched_s=self.dispatched_s,
            token_times_s=times.times_s if times else (),
            counted_by=times.counted_by if times else "",
            remarks=self._remarks(times) if times else {},
            failed=None if failed is None else shown(failed, REASON_CHARS),
        )

    def _ended_early(self, times: TokenTimes) -> bool:
        """Whether it may be shorter than asked for. A server that says it came to the length asked for, and counts no
        tokens, merged some."""
        num_tokens = times.num_tokens + times.num_unstreamed
        is_shorter = 0 < num_tokens < self.request.output_tokens
        return self.may_end_early and is_shorter and self.arrived.finish_reason != "length"

    def _remarks(self, times: TokenTimes) -> dict[str, int]:
        arrived = self.arrived
        remarks = {f"{UNKNOWN_TEXT}: {key}": 1 for key in arrived.unknown_keys}
        remarks |= {
            times.doubt: 1 if times.doubt else 0,
            PASSED_OVER: arrived.num_empty,
            UNSTREAMED: times.num_unstreamed,
            ENDED_EARLY: self.request.output_tokens - times.num_tokens if self._ended_early(times) else 0,
            SENT_AGAIN: int(arrived.is_sent_again),
            UNENDED: int(arrived.is_unended),
            REPEATED: int(arrived.repeated.is_certain),
        }
        return {text: number for text, number in remarks.items() if number}


async def ask(
    connections: Connections,
    endpoint: Endpoint,
    request: HttpRequest,
    message: bytes,
    *,
    now_s: Callable[[], float],
    unread: Unread,
) -> Ended:
    """Send one request and take its answer in to the end; its events wait as `unread` allows. Never raises for what the
    server or the network does: that is in the answer's `failed`. Raises OSError where this process has no file left for
    a connection (file_limit)."""
    limits = answer_limits(endpoint, request.output_tokens)
    dispatched_s = now_s()
    failed: str | None = None
    arrived = Arrived(limits.num_bytes, limits.event_bytes, limits.num_events, unread)
    try:
        await _exchange(connections, message, arrived, dispatched_s + limits.time_s, limits.time_s)
    except AnswerError as error:
        failed = str(error)
    return Ended(
        request=request,
        dispatched_s=dispatched_s,
        arrived=arrived,
        failed=failed,
        may_end_early=not endpoint.fixes_length,
    )


async def _exchange(
    connections: Connections, message: bytes, arrived: Arrived, deadline_s: float, time_s: float
) -> None:
    """Raises AnswerError, and OSError as `ask` does. What is malformed in an answer came before it broke off."""
    try:
        try:
            await connections.exchange(message, arrived, deadline_s, time_s)
        except AnswerError:
            arrived.read()
            raise
        if not arrived.is_over:
            arrived.end()
    except MeasurementError as error:
        raise error if isinstance(error, AnswerError) else AnswerError(str(error)) from error
    if not arrived.is_whole:
        raise AnswerError(_why_unfinished(arrived))


def _why_unfinished(arrived: Arrived) -> str:
    is_stream = "text/event-stream" in arrived.came_as and not arrived.start.lstrip().startswith((b"{", b"<"))
    if arrived.num_events or is_stream or not arrived.start:
        return "the answer stopped before its end: neither finish_reason nor [DONE] came"
    return f"no stream of events: {arrived.came_as}: {readable(arrived.start)}"
