"""Calling again and again: what is awaited, on which loop, and what has done nothing when it is returned."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from pytest_npubench.campaign.repeated_call import RepeatedCall, clock_step_s
from pytest_npubench.errors import MeasurementError


class Later:
    """An awaitable that is no coroutine."""

    def __init__(self, value):
        self._value = value

    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        return self._value


def measured(function, *arguments):
    """What was waited for in a first call and a run of three."""
    waited_for = []
    with RepeatedCall(function, arguments, {}, waited_for.append) as call:
        call.first_s()
        call.seconds(3)
    return waited_for


async def doubled(number):
    return 2 * number


@pytest.mark.parametrize(
    ("function", "value"),
    [(lambda number: number, 4), (doubled, 8), (lambda number: doubled(number), 8), (Later, 4)],
    ids=["plain", "async def", "returns a coroutine", "returns an awaitable"],
)
def test_the_result_is_waited_for_not_the_awaitable(function, value):
    assert measured(function, 4) == [value] * 4


async def _generates():
    yield 1


async def _returns_a_coroutine():
    return doubled(1)


def test_what_has_done_nothing_is_an_error_that_says_what_to_do():
    for function, text in (
        (_generates, r"an iterator \(async_generator\), which does nothing until it is iterated over: measure a"),
        (lambda: map(abs, [1]), r"an iterator \(map\), which does nothing until it is iterated over"),
        (lambda: iter([1]), r"an iterator \(list_iterator\), which does nothing"),
        (lambda: partial(abs, 1), r"another callable \(partial\), which does nothing until it is called"),
        (lambda: abs, r"another callable \(builtin_function_or_method\), which does nothing"),
        (_returns_a_coroutine, "what was awaited gave another awaitable, which nobody awaits: await it inside"),
        (
            lambda: {"logits": [(0, (i for i in "ab"))]},
            "a dict with a generator in it, which nobody waits for",
        ),
        (lambda: [_returns_a_coroutine()], "a list with a coroutine in it"),
        (lambda: ThreadPoolExecutor(1).submit(int), "concurrent.futures.Future, which nobody waits for: return its"),
    ):
        with pytest.raises(MeasurementError, match=text):
            measured(function)


def test_a_test_that_runs_on_a_loop_is_told_to_be_plain():
    async def test():
        measured(doubled, 1)

    with pytest.raises(MeasurementError, match="the test runs on an event loop itself: make the test a plain function"):
        asyncio.run(test())


def test_what_is_left_running_ends_with_the_loop():
    endings = []

    async def forever():
        try:
            await asyncio.sleep(3600)
        finally:
            endings.append("ended")

    tasks = []

    async def starts_and_forgets():
        tasks.append(asyncio.ensure_future(forever()))
        await asyncio.sleep(0)

    measured(starts_and_forgets)
    assert endings == ["ended"] * 4


def test_an_error_of_a_coroutine_passes_through_and_closes_the_loop():
    loops = []

    async def fails():
        loops.append(asyncio.get_running_loop())
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        measured(fails)
    assert loops[0].is_closed()


def test_a_call_of_nothing_runs_on_the_same_loop_and_waits_for_nothing():
    waited_for = []
    for function in (doubled, int):
        with RepeatedCall(function, (1,), {}, waited_for.append) as call:
            call.first_s()
            assert 0 < call.of_nothing().seconds(10) < 1
    assert waited_for == [2, 1]


def test_the_clock_has_a_step():
    assert 0 < clock_step_s() < 1e-3
