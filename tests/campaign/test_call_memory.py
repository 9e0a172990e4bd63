"""The peak memory of a call: by tracemalloc in a call of its own, and by what a device counts."""

import asyncio
import tracemalloc

import pytest

from pytest_npubench.campaign.callable_timing import time_callable
from pytest_npubench.errors import MeasurementError

MEBIBYTE = 1 << 20


def timed(function, memory=lambda: (None, None), **options):
    options = {"rounds": 3, "max_warmup": 2, "iterations": None} | options
    return time_callable(function, (), {}, lambda value: None, count_compiles=lambda: 0, memory=memory, **options)


def buffers(large_bytes=3 * MEBIBYTE):
    large = bytearray(large_bytes)
    del large
    return bytearray(MEBIBYTE)


async def buffers_in_a_task():
    await asyncio.sleep(0)
    return buffers()


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (buffers, {}),
        (buffers, {"max_warmup": 0}),
        (buffers, {"setup": lambda: (3 * MEBIBYTE,)}),
        (buffers_in_a_task, {}),
    ],
)
def test_the_peak_is_what_a_call_holds_at_a_time(function, options):
    peak_bytes = timed(function, **options).python_peak_bytes
    assert 3 * MEBIBYTE <= peak_bytes < 3 * MEBIBYTE + 20_000


def test_nothing_is_traced_while_samples_are_taken_and_one_call_is_added():
    traced = []
    timed(lambda: traced.append(tracemalloc.is_tracing()))
    assert traced.count(True) == 1
    assert traced[-1]
    assert not tracemalloc.is_tracing()
    traced.clear()
    assert timed(lambda: traced.append(tracemalloc.is_tracing()), memory=None).python_peak_bytes is None
    assert not any(traced)


def test_a_callable_that_raises_or_uses_tracemalloc_leaves_nothing_traced():
    def refuses():
        if tracemalloc.is_tracing():
            raise ValueError("the call for its memory")

    def traces():
        tracemalloc.start()
        tracemalloc.stop()

    with pytest.raises(ValueError, match="the call for its memory"):
        timed(refuses)
    assert not tracemalloc.is_tracing()
    with pytest.raises(MeasurementError, match="the measured callable stops tracemalloc"):
        timed(traces)
    assert not tracemalloc.is_tracing()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((300, 600), (300, 800), 500),
        (
            (300, 800),
            (300, 800),
            "jax's count did not rise: an earlier call needed as much, or the memory is not jax's",
        ),
        ((None, None), (None, None), "nothing counts this device's memory"),
        ((None, 600), (None, 800), "nothing counts this device's memory"),
    ],
)
def test_a_device_s_peak_is_what_these_calls_added_where_they_raised_it(before, after, expected):
    counts = iter((before, after))
    timing = timed(list, memory=lambda: next(counts))
    assert (timing.device_peak_bytes or timing.no_device_peak) == expected
