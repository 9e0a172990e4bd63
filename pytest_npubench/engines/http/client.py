"""One request to an OpenAI-compatible server: sent, read piece by piece, timed, and every way it can fail named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from pytest_npubench.engines.http.answer import HttpAnswer, HttpRequest
from pytest_npubench.engines.http.delta import DONE, Delta, parse
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.event_stream import EventStream
from pytest_npubench.engines.http.token_times import token_times
from pytest_npubench.errors import MeasurementError

RETRIED = (429, 500, 502, 503, 504)
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 30.0
ERROR_CHARS = 200


class AnswerError(MeasurementError):
    """An answer that did not come, or not whole. `again`: asking once more may help."""

    def __init__(self, reason: str, *, again: bool = False, pause_s: float | None = None) -> None:
        super().__init__(reason)
        self.again = again
        self.pause_s = pause_s


@dataclass(slots=True)
class _Try:
    """What one attempt has brought so far."""

    deltas: list[tuple[float, Delta]]
    done: bool = False
    finished: bool = False


def open_session(endpoint: Endpoint) -> aiohttp.ClientSession:
    """Connections are kept and used again, as many as there are requests at once. Inside a running loop only.
    Raises ConfigError where the API key or the certificates are not there."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=endpoint.tls(), keepalive_timeout=60.0),
        headers=endpoint.headers(),
        timeout=aiohttp.ClientTimeout(
            total=endpoint.answer_timeout_s,
            sock_connect=endpoint.connect_timeout_s,
            sock_read=endpoint.idle_timeout_s,
        ),
    )


async def ask(
    session: aiohttp.ClientSession, endpoint: Endpoint, request: HttpRequest, *, now_s: Callable[[], float]
) -> HttpAnswer:
    """Send one request and read its answer to the end. Never raises for what the server or the network does: that is
    in the answer's `failed`."""
    body = endpoint.body(request.prompt, request.output_tokens)
    dispatched_s = now_s()
    refused: list[AnswerError] = []
    while True:
        found = _Try(deltas=[])
        try:
            await _read(session, endpoint, body, found, now_s)
        except AnswerError as error:
            if error.again and len(refused) < endpoint.max_retries:
                refused.append(error)
                await asyncio.sleep(_pause_s(error, len(refused)))
                continue
            return _answer(request, dispatched_s, found, len(refused), str(error))
        failed = f"answered after {len(refused)} retries, which is a failure: {refused[0]}" if refused else None
        return _answer(request, dispatched_s, found, len(refused), failed)


async def _read(
    session: aiohttp.ClientSession,
    endpoint: Endpoint,
    body: dict[str, object],
    found: _Try,
    now_s: Callable[[], float],
) -> None:
    """Raises AnswerError."""
    events = EventStream()
    try:
        async with session.post(endpoint.address, json=body) as response:
            if response.status != 200:
                raise await _refusal(response)
            async for chunk in response.content.iter_any():
                at_s = now_s()
                for event in events.feed(chunk):
                    _take(event, at_s, found)
    except (aiohttp.ClientConnectorError, ConnectionRefusedError) as error:
        raise AnswerError(f"no connection: {error}", again=True) from error
    except asyncio.TimeoutError as error:  # builtin TimeoutError from Python 3.11 on
        raise AnswerError(f"timed out: {error or f'no whole answer in {endpoint.answer_timeout_s:g} s'}") from error
    except aiohttp.ClientError as error:
        raise AnswerError(f"disconnected: {type(error).__name__}: {error}", again=not found.deltas) from error
    except MeasurementError as error:
        raise error if isinstance(error, AnswerError) else AnswerError(str(error)) from error
    if not (found.done or found.finished):
        raise AnswerError("the answer stopped before its end: neither finish_reason nor [DONE] came")


def _take(event: str, at_s: float, found: _Try) -> None:
    if event == DONE:
        found.done = True
        return
    delta = parse(event)
    found.finished = found.finished or delta.finished
    found.deltas.append((at_s, delta))


async def _refusal(response: aiohttp.ClientResponse) -> AnswerError:
    text = " ".join((await response.text(errors="replace"))[:ERROR_CHARS].split())
    after = response.headers.get("Retry-After", "")
    return AnswerError(
        f"HTTP {response.status} {response.reason or ''}: {text or 'no message'}",
        again=response.status in RETRIED,
        pause_s=min(float(after), LONGEST_PAUSE_S) if after.isdigit() else None,
    )


def _pause_s(error: AnswerError, num_failures: int) -> float:
    return error.pause_s if error.pause_s is not None else min(FIRST_PAUSE_S * 2 ** (num_failures - 1), LONGEST_PAUSE_S)


def _answer(request: HttpRequest, dispatched_s: float, found: _Try, num_retries: int, failed: str | None) -> HttpAnswer:
    """`failed` says how the transport failed; what the tokens themselves tell is found out here."""
    times_s: tuple[float, ...] = ()
    counted_by = ""
    try:
        times = token_times(found.deltas)
        times_s, counted_by = times.times_s, times.counted_by
        if len(times_s) != request.output_tokens:
            failed = failed or f"{len(times_s)} tokens came, {request.output_tokens} were asked for"
    except MeasurementError as error:
        failed = failed or str(error)
    return HttpAnswer(
        request=request,
        dispatched_s=dispatched_s,
        token_times_s=times_s[: request.output_tokens],
        counted_by=counted_by,
        num_retries=num_retries,
        failed=failed,
    )
