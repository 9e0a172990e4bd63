"""A callable with its arguments, called again and again: each call is waited for before the next one begins.

What it returns decides what waiting means. An awaitable (a coroutine function's above all) is awaited on one event loop
that lives as long as the measurement, then the device is waited for. What can be neither awaited nor waited for, an
iterator or a function say, has done nothing yet when it is returned: that is an error rather than a meaningless time.
"""

from __future__ import annotations

import gc
import inspect
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from io import IOBase
from itertools import islice, pairwise, repeat
from typing import TYPE_CHECKING, Any

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import MeasurementError

if TYPE_CHECKING:
    import asyncio

Synchronize = Callable[[Any], None]
CLOCK_READINGS = 1000
MAX_PARTS = 100


class RepeatedCall:
    """A call that is repeated, inside a `with` statement, whose end closes the event loop where there is one."""

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        synchronize: Synchronize,
        *,
        setup: Callable[[], tuple[Any, ...]] | None = None,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._keywords = keywords
        self._synchronize = synchronize
        self._setup = setup
        self._loop: asyncio.AbstractEventLoop | None = None
        self.result: Any = None
        """What the first call returned, or what was awaited of it."""

    def first_s(self) -> float:
        """Returns seconds of the first call, which finds out whether there is something to await.

        Raises MeasurementError where the result has done nothing yet, or is to be awaited within a running event loop.
        """
        arguments = self._inputs()
        started_s = perf_counter()
        value = self._function(*arguments, **self._keywords)
        if inspect.isawaitable(value):
            self._loop = _new_loop(value)
            value = self._loop.run_until_complete(_awaited(value))
        _check_done(value)
        _check_parts(value)
        self._synchronize(value)
        took_s, self.result = perf_counter() - started_s, value
        return took_s

    def seconds(self, num_calls: int) -> float:
        """Returns seconds of so many calls in a row together, each waited for, all with the same arguments. After
        first_s()."""
        if self._loop is not None:
            return self._loop.run_until_complete(self._await_each(num_calls))
        function, arguments, keywords, synchronize = self._function, self._inputs(), self._keywords, self._synchronize
        calls = repeat(None, num_calls)
        started_s = perf_counter()
        for _ in calls:
            synchronize(function(*arguments, **keywords))
        return perf_counter() - started_s

    def peak_bytes(self) -> int:
        """Returns the most bytes that Python's allocators, and numpy's, held at a time of what one more call allocates:
        tracemalloc counts them. After first_s().

        Raises MeasurementError where the callable stops tracemalloc itself.
        """
        arguments = self._inputs()
        gc.collect()  # garbage is collected during the call as ever, from a count of 0 on
        tracemalloc.start()
        try:
            value = self._function(*arguments, **self._keywords)
            self._synchronize(value if self._loop is None else self._loop.run_until_complete(value))
            if not tracemalloc.is_tracing():
                raise MeasurementError("the measured callable stops tracemalloc, by which its peak memory is counted")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    async def _await_each(self, num_calls: int) -> float:
        function, arguments, keywords, synchronize = self._function, self._inputs(), self._keywords, self._synchronize
        calls = repeat(None, num_calls)
        started_s = perf_counter()
        for _ in calls:
            synchronize(await function(*arguments, **keywords))
        return perf_counter() - started_s

    def _inputs(self) -> tuple[Any, ...]:
        """Returns the arguments, behind those that the setup makes anew, whose arrays are there before the clock is
        read. Raises MeasurementError where the setup returns no tuple."""
        if self._setup is None:
            return self._arguments
        fresh = self._setup()
        if not isinstance(fresh, tuple):
            raise MeasurementError(f"setup returned a {type(fresh).__name__}; want a tuple of arguments")
        with suppress(MeasurementError):  # without an array there is nothing to wait for
            self._synchronize(fresh)
        return (*fresh, *self._arguments)

    def of_nothing(self) -> RepeatedCall:
        """Makes the same loop, clock and event loop around a call that does nothing and waits for nothing."""
        empty = RepeatedCall(_nothing if self._loop is None else _nothing_to_await, (), {}, _nothing)
        empty._loop = self._loop
        return empty

    def __enter__(self) -> RepeatedCall:
        return self

    def __exit__(self, *raised: object) -> None:
        if self._loop is not None:
            _close(self._loop)


def clock_step_s() -> float:
    """Returns the least time between two readings of the clock in a row: its resolution, and what a reading costs."""
    readings = [perf_counter() for _ in range(CLOCK_READINGS)]
    steps_s = [after - before for before, after in pairwise(readings) if after > before]
    return min(steps_s, default=0.0)


def _nothing(*_: Any) -> None:
    """What is called, and waited for, to see what the loop around it takes."""


async def _nothing_to_await() -> None:
    """Does nothing, to be awaited."""


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value


def _check_done(value: Any) -> None:
    """Raises MeasurementError for a result whose work has not been done."""
    if inspect.isawaitable(value):
        _give_up(value)
        raise MeasurementError("what was awaited gave another awaitable, which nobody awaits: await it inside")
    if isinstance(value, (AsyncIterator, Iterator)) and not isinstance(value, IOBase):  # an open file is one
        raise MeasurementError(
            f"the measured callable returned an iterator ({type(value).__name__}), which does nothing until it is "
            "iterated over: measure a function that iterates over it"
        )
    if inspect.isroutine(value) or isinstance(value, partial):
        raise MeasurementError(
            f"the measured callable returned another callable ({type(value).__name__}), which does nothing until it is "
            "called: measure a function that calls it"
        )
    if isinstance(value, Future):
        raise MeasurementError(
            "the measured callable returned a concurrent.futures.Future, which nobody waits for: return its result()"
        )


def _check_parts(value: Any) -> None:
    """Raises MeasurementError where a tuple, list or dict, however deep, has a part whose work has not been done. The
    first MAX_PARTS are looked at."""
    parts = [value]
    for part in islice(parts, MAX_PARTS):  # which grows meanwhile
        if inspect.isawaitable(part) or inspect.isgenerator(part) or isinstance(part, Future):
            _give_up(part)
            raise MeasurementError(
                f"the measured callable returned a {type(value).__name__} with a {type(part).__name__} in it, which "
                "nobody waits for or iterates over: return its result"
            )
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, (tuple, list)) else ()
        parts += islice(inner, MAX_PARTS)


def _new_loop(value: Any) -> asyncio.AbstractEventLoop:
    """Returns a new event loop. Raises MeasurementError where the test runs on one itself: nobody would await
    `value`."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.new_event_loop()
    _give_up(value)
    raise MeasurementError(
        "the measured callable has to be awaited, but the test runs on an event loop itself: make the test a plain "
        "function, npubench awaits the callable"
    )


def _give_up(value: Any) -> None:
    """Closes a coroutine that nobody will await, so that Python does not warn of it once more."""
    if inspect.iscoroutine(value):
        value.close()


def _close(loop: asyncio.AbstractEventLoop) -> None:
    """Ends what the callable left running, then the loop, as asyncio.run does."""
    import asyncio

    try:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()
