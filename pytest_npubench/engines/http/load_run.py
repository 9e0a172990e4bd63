"""Open-loop load on a server: each request is sent when it is due, whether or not others were answered.

The client watches itself: how late it sends (dispatch lag), and how long its event loop stood still (stalls), since a
stalled client times its own slowness. Both belong beside every figure it measures.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pytest_npubench.core.clock import monotonic
from pytest_npubench.engines.http.alarm import Alarm
from pytest_npubench.engines.http.answer import HttpAnswer, HttpRequest
from pytest_npubench.engines.http.arrived import Unread
from pytest_npubench.engines.http.client import Ended, ask
from pytest_npubench.engines.http.connections import Connections
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.no_collection import no_collection
from pytest_npubench.processes.file_limit import enough_files

T = TypeVar("T")
STALL_TICK_S = 0.005
AT_ONCE = 2  # answers of a backlog


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRun:
    """answers in the order of arrival; loop_stalls_s: how late each look of the client's watch came, worst last.
    started_s is time.monotonic() at the start of the run, from which all other times count. lost: the processes of the
    client that ended before they told their answers (shared_load), with their last words."""

    answers: tuple[HttpAnswer, ...]
    loop_stalls_s: tuple[float, ...]
    started_s: float
    ended_s: float
    lost: tuple[str, ...] = ()

    @property
    def dispatch_lags_s(self) -> tuple[float, ...]:
        """The lags of the requests that were sent."""
        return tuple(
            answer.dispatched_s - answer.request.arrival_s for answer in self.answers if answer.dispatched_s is not None
        )


def run_load(endpoint: Endpoint, requests: Sequence[HttpRequest], *, starts_at_s: float | None = None) -> HttpRun:
    """Send every request at its time and wait for all answers. What goes wrong with single ones is in their answers.
    starts_at_s: time.monotonic() from which arrivals count (None: at once).

    Raises ConfigError before anything is sent where the endpoint cannot be used, and MeasurementError where this
    process may not open a file for each connection: then nothing was measured, and the server is not to blame.
    """
    for request in requests:
        endpoint.body(request.prompt, request.output_tokens)
    with enough_files(len(requests)):
        sent = _loop_runner()(_send_all(endpoint, requests, starts_at_s))
    return HttpRun(
        answers=sent.backlog.in_order(),
        loop_stalls_s=tuple(sorted(sent.stalls_s)),
        started_s=sent.started_s,
        ended_s=sent.ended_s,
    )


def _loop_runner() -> Callable[[Coroutine[Any, Any, T]], T]:
    """uvloop's event loop where it is installed: it takes less of a core for each piece that arrives."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


class Backlog:
    """Answers that are over. While others arrive none is read, unless what is unread fills half of its room: then the
    ones that ended first are, so that those still coming need not be; two for each that ends, as the loop stands still
    meanwhile."""

    def __init__(self) -> None:
        self.unread = Unread()
        self._ended: deque[tuple[int, Ended]] = deque()
        self._answers: dict[int, HttpAnswer] = {}

    def add(self, index: int, ended: Ended) -> None:
        self._ended.append((index, ended))
        for _ in range(AT_ONCE):
            if self.unread.is_half_full and self._ended:
                self._read_first()

    def in_order(self) -> tuple[HttpAnswer, ...]:
        """All answers, in the order of their requests."""
        while self._ended:
            self._read_first()
        return tuple(self._answers[place] for place in sorted(self._answers))

    def _read_first(self) -> None:
        index, ended = self._ended.popleft()
        self._answers[index] = ended.answer()


@dataclass(slots=True, kw_only=True)
class _Sent:
    """A run that is over, its answers not read yet: reading them is no matter of an event loop."""

    backlog: Backlog = field(repr=False)
    stalls_s: list[float] = field(repr=False)
    started_s: float
    ended_s: float


async def _send_all(endpoint: Endpoint, requests: Sequence[HttpRequest], starts_at_s: float | None) -> _Sent:
    backlog = Backlog()
    started_s = monotonic()

    def now_s() -> float:
        return monotonic() - started_s

    async with Connections(endpoint, now_s) as connections:
        with Alarm() as alarm, no_collection():
            # behind the collection, which would put the first requests off
            started_s = monotonic() if starts_at_s is None else starts_at_s

            async def asked(index: int, request: HttpRequest, message: bytes) -> None:
                if (think_s := request.think_s) is not None and index:
                    await asyncio.wait([tasks[index - 1]])
                    request = replace(request, arrival_s=now_s() + think_s)
                    while (early_s := request.arrival_s - now_s()) > 0:  # a loop's timers are rounded both ways
                        await asyncio.sleep(early_s)
                ended = await ask(connections, endpoint, request, message, now_s=now_s, unread=backlog.unread)
                backlog.add(index, ended)

            stalls: list[float] = []
            watch = asyncio.create_task(_watch(stalls))
            tasks: list[asyncio.Task[None]] = []
            broken = asyncio.Event()
            for index, request in enumerate(requests):
                message = connections.message(request)
                await alarm.until(started_s + request.arrival_s)
                if broken.is_set():
                    break
                task = asyncio.create_task(asked(index, request, message))
                task.add_done_callback(lambda done: broken.set() if not done.cancelled() and done.exception() else None)
                tasks.append(task)
            await asyncio.gather(*tasks)
            ended_s = now_s()
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
    return _Sent(backlog=backlog, stalls_s=stalls, started_s=started_s, ended_s=ended_s)


async def _watch(stalls: list[float]) -> None:
    while True:
        before_s = monotonic()
        await asyncio.sleep(STALL_TICK_S)
        stalls.append(monotonic() - before_s - STALL_TICK_S)
