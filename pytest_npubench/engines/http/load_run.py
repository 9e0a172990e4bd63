"""Open-loop load on a server: each request is sent when it is due, whether or not others were answered.

The client watches itself: how late it sends (dispatch lag), and how long its event loop stood still (stalls), since a
stalled client times its own slowness. Both belong beside every figure it measures.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import aiohttp

from pytest_npubench.engines.http.answer import HttpAnswer, HttpRequest
from pytest_npubench.engines.http.arrived import Unread
from pytest_npubench.engines.http.client import Ended, ask
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.no_collection import no_collection
from pytest_npubench.processes.file_limit import enough_files

LINE_BYTES, NUM_HEADERS, RECEIVE_BYTES = 8190, 128, 2**14  # Linux doubles the last


# The connections to a server, and what is not done on them.
#
# No proxy and no password file of the environment is used, no cookie is kept, nothing is unpacked; headers have limits,
# and so has what is read at once.
def _socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """Holds little, and so little is read at once: an event loop asks for 256 KiB, and what a flood of the smallest
    answers ("HTTP/1.1 100 Continue") unfolds to between two turns of the loop is twenty times its bytes, on each
    connection. The system's own bound holds for any loop; one that reads by itself calls no method of a socket."""
    family, kind, protocol, _, _ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    return opened


def open_session(endpoint: Endpoint) -> aiohttp.ClientSession:
    """Connections are kept and used again, as many as there are requests at once. Inside a running loop only.
    Raises ConfigError where the API key or the certificates are not there."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=endpoint.tls(), keepalive_timeout=60.0, socket_factory=_socket),
        headers=endpoint.headers(),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=False,
        max_line_size=LINE_BYTES,
        max_field_size=LINE_BYTES,
        max_headers=NUM_HEADERS,
    )


STALL_TICK_S = 0.005
SPIN_S = 0.0015  # an event loop's timers are rounded up to milliseconds: the rest is spent giving way to others


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRun:
    """answers in the order of arrival; loop_stalls_s: how late each look of the client's watch came, worst last.
    started_s is time.monotonic() at the start of the run, from which all other times count."""

    answers: tuple[HttpAnswer, ...]
    loop_stalls_s: tuple[float, ...]
    started_s: float
    ended_s: float

    @property
    def dispatch_lags_s(self) -> tuple[float, ...]:
        return tuple(answer.dispatched_s - answer.request.arrival_s for answer in self.answers)


def run_load(endpoint: Endpoint, requests: Sequence[HttpRequest]) -> HttpRun:
    """Send every request at its time and wait for all answers. What goes wrong with single ones is in their answers.

    Raises ConfigError before anything is sent where the endpoint cannot be used, and MeasurementError where this
    process may not open a file for each connection: then nothing was measured, and the server is not to blame.
    """
    for request in requests:
        endpoint.body(request.prompt, request.output_tokens)
    with enough_files(len(requests)):
        return _loop_runner()(_run(endpoint, requests))


def _loop_runner() -> Callable[[Coroutine[Any, Any, HttpRun]], HttpRun]:
    """uvloop's event loop where it is installed: it takes less of a core for each piece that arrives."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


class Backlog:
    """Answers that are over. While others arrive none is read, unless those unread are too many bytes: then the ones
    that ended first are."""

    def __init__(self) -> None:
        self.unread = Unread()
        self._ended: deque[tuple[int, Ended]] = deque()
        self._answers: dict[int, HttpAnswer] = {}

    def add(self, place: int, ended: Ended) -> None:
        self._ended.append((place, ended))
        while self.unread.is_full and self._ended:
            self._read_first()

    def in_order(self) -> tuple[HttpAnswer, ...]:
        """All answers, by their place."""
        while self._ended:
            self._read_first()
        return tuple(self._answers[place] for place in sorted(self._answers))

    def _read_first(self) -> None:
        place, ended = self._ended.popleft()
        self._answers[place] = ended.answer()


async def _run(endpoint: Endpoint, requests: Sequence[HttpRequest]) -> HttpRun:
    backlog = Backlog()
    async with open_session(endpoint) as session:
        with no_collection():
            started_s = time.monotonic()  # behind the collection, which would put the first requests off

            def now_s() -> float:
                return time.monotonic() - started_s

            async def asked(place: int, request: HttpRequest) -> None:
                backlog.add(place, await ask(session, endpoint, request, now_s=now_s, unread=backlog.unread))

            stalls: list[float] = []
            watch = asyncio.create_task(_watch(stalls))
            tasks, broken = [], asyncio.Event()
            for place, request in enumerate(requests):
                await _until(request.arrival_s, now_s)
                if broken.is_set():
                    break
                task = asyncio.create_task(asked(place, request))
                task.add_done_callback(lambda done: broken.set() if not done.cancelled() and done.exception() else None)
                tasks.append(task)
            await asyncio.gather(*tasks)
            ended_s = now_s()
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
    return HttpRun(
        answers=backlog.in_order(), loop_stalls_s=tuple(sorted(stalls)), started_s=started_s, ended_s=ended_s
    )


async def _until(due_s: float, now_s: Callable[[], float]) -> None:
    if (wait_s := due_s - now_s() - SPIN_S) > 0:
        await asyncio.sleep(wait_s)
    while now_s() < due_s:
        await asyncio.sleep(0)


async def _watch(stalls: list[float]) -> None:
    while True:
        before_s = time.monotonic()
        await asyncio.sleep(STALL_TICK_S)
        stalls.append(time.monotonic() - before_s - STALL_TICK_S)
