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
from pytest_npubench.engines.http.delta import DONE, Delta, parse
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.event_stream import EventStream
from pytest_npubench.engines.http.limits import AnswerLimits, answer_limits
from pytest_npubench.engines.http.token_times import in_digits, token_times
from pytest_npubench.errors import MeasurementError
from pytest_npubench.processes.file_limit import ran_out

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


@dataclass(slots=True)
class _Try:
    """What one attempt has brought so far."""

    deltas: list[tuple[float, Delta]] = field(default_factory=list)
    num_bytes: int = 0
    total_tokens: int | None = None
    done: bool = False
    finished: bool = False


async def ask(
    session: aiohttp.ClientSession, endpoint: Endpoint, request: HttpRequest, *, now_s: Callable[[], float]
) -> HttpAnswer:
    """Send one request and read its answer to the end. Never raises for what the server or the network does: that is
    in the answer's `failed`. Raises OSError where this process has no file left for a connection (file_limit)."""
    body = endpoint.body(request.prompt, request.output_tokens)
    limits = answer_limits(endpoint, request.output_tokens)
    dispatched_s = now_s()
    deadline_s = time.monotonic() + limits.time_s
    refused: list[AnswerError] = []
    while True:
        found = _Try()
        try:
            await _read(session, endpoint, body, limits, deadline_s, found, now_s)
        except AnswerError as error:
            pause_s = _pause_s(error, len(refused))
            left_s = deadline_s - time.monotonic()
            if error.again and len(refused) < endpoint.max_retries and pause_s < left_s:
                refused.append(error)
                await asyncio.sleep(pause_s)
                continue
            return _answer(request, dispatched_s, found, len(refused), _without_key(str(error), session))
        failed = f"answered after {len(refused)} retries, which is a failure: {refused[0]}" if refused else None
        return _answer(request, dispatched_s, found, len(refused), failed)


async def _read(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    body: dict[str, object],
    limits: AnswerLimits,
    deadline_s: float,
    found: _Try,
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
            await _stream(response, limits, found, now_s)
    except aiohttp.ClientConnectorError as error:
        if ran_out(error):
            raise
        raise AnswerError(f"no connection: {error}", again=True) from error
    except asyncio.TimeoutError as error:  # builtin TimeoutError from Python 3.11 on
        raise AnswerError(f"timed out: {str(error) or f'no whole answer in {limits.time_s:g} s'}") from error
    except aiohttp.ClientResponseError as error:
        raise AnswerError(f"malformed stream: no answer in HTTP: {' '.join(error.message.split())}") from error
    except LOST as error:
        raise AnswerError(f"disconnected: {type(error).__name__}: {error}", again=not found.deltas) from error
    except MeasurementError as error:
        raise error if isinstance(error, AnswerError) else AnswerError(str(error)) from error
    if not (found.done or found.finished):
        raise AnswerError("the answer stopped before its end: neither finish_reason nor [DONE] came")


async def _stream(
    response: aiohttp.ClientResponse, limits: AnswerLimits, found: _Try, now_s: Callable[[], float]
) -> None:
    """Raises MeasurementError on what is malformed or over its limits."""
    events = EventStream(limits.event_bytes)
    async for chunk in response.content.iter_any():
        at_s = now_s()
        found.num_bytes += len(chunk)
        if found.num_bytes > limits.num_bytes:
            raise MeasurementError(f"malformed stream: an answer of more than {limits.num_bytes} bytes")
        for event in events.feed(chunk):
            _take(event, at_s, limits, found)
            if found.done:
                await _end(response)
                return


def _take(event: str, at_s: float, limits: AnswerLimits, found: _Try) -> None:
    if event == DONE:
        found.done = True
        return
    delta = parse(event)
    found.finished = found.finished or delta.finished
    says_more = delta.total_tokens not in (None, found.total_tokens)
    if not (delta.num_chars or delta.num_tokens or says_more):
        return  # a sign of life
    if says_more:
        found.total_tokens = delta.total_tokens
    found.deltas.append((at_s, delta))
    if len(found.deltas) > limits.num_events:
        raise MeasurementError(f"malformed stream: more than {limits.num_events} events with text or counts")


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
        f"{status}: {shown(_without_key(text, session), ERROR_CHARS) or 'no message'}",
        again=response.status in RETRIED,
        pause_s=min(float(after), LONGEST_PAUSE_S) if after.isascii() and after.isdigit() else None,
    )


def _without_key(text: str, session: aiohttp.ClientSession) -> str:
    """A server may repeat the API key that it was shown."""
    key = session.headers.get("Authorization", "").removeprefix("Bearer ")
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


def _answer(request: HttpRequest, dispatched_s: float, found: _Try, num_retries: int, failed: str | None) -> HttpAnswer:
    """`failed` says how the transport failed; what the tokens themselves tell is found out here."""
    times_s: tuple[float, ...] = ()
    counted_by = ""
    try:
        times = token_times(found.deltas, request.output_tokens)
        times_s, counted_by = times.times_s, times.counted_by
        if times.num_tokens != request.output_tokens:
            failed = failed or f"{in_digits(times.num_tokens)} tokens came, {request.output_tokens} were asked for"
    except MeasurementError as error:
        failed = failed or str(error)
    return HttpAnswer(
        request=request,
        dispatched_s=dispatched_s,
        token_times_s=times_s,
        counted_by=counted_by,
        num_retries=num_retries,
        failed=None if failed is None else shown(failed, REASON_CHARS),
    )
