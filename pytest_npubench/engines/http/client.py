"""One request to an OpenAI-compatible server: sent, read piece by piece, timed, and every way it can fail named.

No redirect is followed, and nothing that is packed is unpacked. What a request may take is bounded by `limits`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp

from pytest_npubench.core.secret import HIDDEN
from pytest_npubench.core.server_access import redirected_to, shown
from pytest_npubench.engines.http.answer import HttpAnswer, HttpRequest
from pytest_npubench.engines.http.arrived import Arrived, Unread
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.token_times import in_digits, token_times
from pytest_npubench.errors import MeasurementError
from pytest_npubench.processes.file_limit import ran_out

TOKEN_S, LONGEST_S = 5.0, 600.0
ANSWER_BYTES, TOKEN_BYTES = 2**19, 2**14
EVENT_BYTES, EVENT_TOKEN_BYTES = 2**18, 2**8
NUM_EVENTS, TOKEN_EVENTS = 64, 4


# What one answer may take, in time, bytes and events: derived from what was asked for, so that no server decides it.
#
#     time     connect_timeout_s + idle_timeout_s + 5 s a token, at most 600 s; or answer_timeout_s where that is given.
#              It is for the whole request: retries, and the pauses before them, are part of it.
#     bytes    512 KiB + 16 KiB a token: an event of one token is 0.3 KiB, with twenty log-probabilities 3 KiB
#     event    256 KiB + 256 bytes a token: a proxy may merge a whole answer into one
#     events   64 + 4 a token, of those that bring text or a new count: what is kept of an answer
#
# Worked example: 16 tokens and the default times of an endpoint (10 and 60 s) have 150 s, 768 KiB, events of up to
# 260 KiB, and 128 of them.
@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """time_s from the first sending to the last byte, retries included; event_bytes of one event or line."""

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


RETRIED = (429, 500, 502, 503, 504)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 30.0
ERROR_CHARS, REASON_CHARS, ERROR_BYTES = 200, 400, 4096
ERROR_S, END_S = 2.0, 1.0  # a refusal's own words, and the end behind [DONE], are waited for no longer

LOST = (aiohttp.ClientError, OSError, RuntimeError)  # the last from a stream whose framing broke


class AnswerError(MeasurementError):
    """An answer that did not come, or not whole. `again`: asking once more may help."""

    def __init__(self, reason: str, *, again: bool = False, pause_s: float | None = None) -> None:
        super().__init__(reason)
        self.again = again
        self.pause_s = pause_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A request whose answer is over, its events read or not. failed: how the transport failed. key: hidden where the
    server sent it back."""

    request: HttpRequest
    dispatched_s: float
    arrived: Arrived
    num_retries: int
    failed: str | None
    key: str = field(repr=False)

    def answer(self) -> HttpAnswer:
        """Reads what was not read yet: what the events and their tokens tell is found out here."""
        failed, times = self.failed, None
        try:
            self.arrived.read()
        except MeasurementError as error:
            failed = _without_key(str(error), self.key)
        try:
            times = token_times(self.arrived.deltas, self.request.output_tokens)
            if times.num_tokens != self.request.output_tokens:
                came = f"{in_digits(times.num_tokens)} tokens came"
                failed = failed or f"{came}, {self.request.output_tokens} were asked for"
        except MeasurementError as error:
            failed = failed or str(error)
        return HttpAnswer(
            request=self.request,
            dispatched_s=self.dispatched_s,
            token_times_s=times.times_s if times else (),
            counted_by=times.counted_by if times else "",
            num_retries=self.num_retries,
            failed=None if failed is None else shown(failed, REASON_CHARS),
        )


async def ask(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    request: HttpRequest,
    *,
    now_s: Callable[[], float],
    unread: Unread,
) -> Ended:
    """Send one request and take its answer in to the end; its events wait as `unread` allows. Never raises for what the
    server or the network does: that is in the answer's `failed`. Raises OSError where this process has no file left for
    a connection (file_limit)."""
    body = endpoint.body(request.prompt, request.output_tokens)
    limits = answer_limits(endpoint, request.output_tokens)
    dispatched_s = now_s()
    deadline_s = time.monotonic() + limits.time_s
    refused: list[AnswerError] = []
    failed: str | None = None
    while True:
        arrived = Arrived(limits.num_bytes, limits.event_bytes, limits.num_events, unread)
        try:
            await _read(session, endpoint, body, limits, deadline_s, arrived, now_s)
            if refused:
                failed = f"answered after {len(refused)} retries, which is a failure: {refused[0]}"
        except AnswerError as error:
            pause_s = _pause_s(error, len(refused))
            left_s = deadline_s - time.monotonic()
            if error.again and len(refused) < endpoint.max_retries and pause_s < left_s:
                refused.append(error)
                await asyncio.sleep(pause_s)
                continue
            failed = _without_key(str(error), _key(session))
        return Ended(
            request=request,
            dispatched_s=dispatched_s,
            arrived=arrived,
            num_retries=len(refused),
            failed=failed,
            key=_key(session),
        )


async def _read(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    body: dict[str, object],
    limits: AnswerLimits,
    deadline_s: float,
    arrived: Arrived,
    now_s: Callable[[], float],
) -> None:
    """Raises AnswerError, and OSError as `ask` does."""
    timeout = aiohttp.ClientTimeout(
        total=max(deadline_s - time.monotonic(), 0.001),  # 0 would be none
        sock_connect=endpoint.connect_timeout_s,
        sock_read=endpoint.idle_timeout_s,
    )
    try:
        async with session.post(endpoint.address, json=body, timeout=timeout, allow_redirects=False) as response:
            if response.status != 200:
                raise await _refusal(response, session)
            if coding := _coding(response):
                raise AnswerError(f"malformed stream: in the content coding {coding}, which was not asked for")
            await _stream(response, arrived, now_s)
    except aiohttp.ClientConnectorError as error:
        if ran_out(error):
            raise
        raise AnswerError(f"no connection: {error}", again=True) from error
    except asyncio.TimeoutError as error:  # builtin TimeoutError from Python 3.11 on
        raise AnswerError(f"timed out: {str(error) or f'no whole answer in {limits.time_s:g} s'}") from error
    except aiohttp.ClientResponseError as error:
        raise AnswerError(f"malformed stream: no answer in HTTP: {' '.join(error.message.split())}") from error
    except LOST as error:
        raise AnswerError(f"disconnected: {type(error).__name__}: {error}", again=not arrived.deltas) from error
    except MeasurementError as error:
        raise error if isinstance(error, AnswerError) else AnswerError(str(error)) from error
    if not arrived.is_whole:
        raise AnswerError("the answer stopped before its end: neither finish_reason nor [DONE] came")


async def _stream(response: aiohttp.ClientResponse, arrived: Arrived, now_s: Callable[[], float]) -> None:
    """Raises MeasurementError on what is malformed or over its limits, as far as it was read."""
    try:
        async for piece in response.content.iter_any():
            arrived.add(now_s(), piece)
            if arrived.is_over:
                await _end(response)
                return
    except (asyncio.TimeoutError, *LOST):
        arrived.read()  # what is malformed in it came before
        raise
    arrived.read()


async def _end(response: aiohttp.ClientResponse) -> None:
    """A connection that is read to its end can be used again; one that does not end is closed."""
    with suppress(asyncio.TimeoutError, *LOST):
        await asyncio.wait_for(_words(response), END_S)


async def _refusal(response: aiohttp.ClientResponse, session: aiohttp.ClientSession) -> AnswerError:
    status = f"HTTP {response.status} {shown(response.reason or '')}".rstrip()
    if 300 <= response.status < 400 and (location := response.headers.get("Location")):
        return AnswerError(f"{status}: redirects to {redirected_to(location)}, and no redirect is followed")
    body = bytearray()
    with suppress(asyncio.TimeoutError, *LOST):
        await asyncio.wait_for(_words(response, body), ERROR_S)
    coding = _coding(response)
    text = f"words in the content coding {coding}" if coding else " ".join(body.decode(errors="replace").split())
    after = response.headers.get("Retry-After", "")
    return AnswerError(
        f"{status}: {shown(_without_key(text, _key(session)), ERROR_CHARS) or 'no message'}",
        again=response.status in RETRIED,
        pause_s=min(float(after), LONGEST_PAUSE_S) if after.isascii() and after.isdigit() else None,
    )


def _key(session: aiohttp.ClientSession) -> str:
    return session.headers.get("Authorization", "").removeprefix("Bearer ")


def _without_key(text: str, key: str) -> str:
    """A server may repeat the API key that it was shown."""
    return text.replace(key, HIDDEN) if key else text


async def _words(response: aiohttp.ClientResponse, body: bytearray | None = None) -> None:
    """The next ERROR_BYTES at most, into `body`."""
    left = ERROR_BYTES
    while left > 0 and (piece := await response.content.read(left)):
        left -= len(piece)
        if body is not None:
            body += piece


def _coding(response: aiohttp.ClientResponse) -> str:
    """Empty for none."""
    coding = shown(response.headers.get("Content-Encoding", ""))
    return "" if coding.lower() == "identity" else coding


def _pause_s(error: AnswerError, num_before: int) -> float:
    """Before another try; num_before were refused already."""
    return error.pause_s if error.pause_s is not None else min(FIRST_PAUSE_S * 2**num_before, LONGEST_PAUSE_S)
