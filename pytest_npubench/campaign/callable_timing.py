"""Timing any callable on a device: warm up until steady, then samples that end when the device is done.

A sample is one call. Where that is too short for the clock, it is the mean of several calls in a row, each of them
waited for, so that it means the same: what a call takes until its result is there. The first call runs as the user
left the process; from then on tracers and profilers are off (coverage has seen the callable by then) and garbage is
collected between samples only. The tracer and the profiler of this thread, those that new threads would get, and the
callbacks of sys.monitoring (Python 3.12) are taken off and put back. Threads that already run keep theirs.

Where the device was disturbed while they were taken, they are taken again, at most twice; the last ones are kept
whatever happened, with the reason.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pytest_npubench.backends.telemetry.round_state import RoundState
from pytest_npubench.campaign.repeated_call import RepeatedCall, Synchronize, clock_step_s
from pytest_npubench.campaign.slowed_process import check_not_slowed
from pytest_npubench.campaign.warmup import warm_up
from pytest_npubench.campaign.watch import Watch, Watched
from pytest_npubench.engines.no_collection import no_collection

MAX_ATTEMPTS = 3
SHORTEST_SAMPLE_S = 10e-6
STEPS_A_SAMPLE = 100
"""Steps of the clock that a sample lasts at least: it is read to 1 %, the margin that the gate does not mind."""
LONG_FOR_CERTAIN_S = 10e-3
"""A call that took so long is not tried again to see whether an interrupt was all there was to it."""
MAX_ITERATIONS = 4096
REPEATS = 3
"""The shortest of so many speaks for a number of calls: an interrupt lengthens the others."""
MONITORING_TOOLS = range(6)
"""The ids that sys.monitoring has for tools; its own for settrace and setprofile come after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTiming:
    """Seconds of each call, whether the warm-up became steady, and the compiles while samples were taken.

    Each sample is the mean of `iterations` calls; overhead_s is what a call of nothing takes in the same loop by the
    same clock, which is not subtracted. `disturbed` says why these samples, the last of several attempts, should not
    count; is_partly_disturbed: an attempt before these was disturbed. state is the device's meanwhile. `result` is what
    the first call returned. python_peak_bytes and device_peak_bytes are the most that a call added, None where nobody
    asked or nobody can tell; no_device_peak says why.
    """

    samples_s: tuple[float, ...]
    steady: bool
    num_late_compiles: int
    iterations: int
    overhead_s: float
    disturbed: str | None = None
    is_partly_disturbed: bool = False
    state: RoundState | None = None
    result: Any = None
    python_peak_bytes: int | None = None
    device_peak_bytes: int | None = None
    no_device_peak: str = ""


def time_callable(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    synchronize: Synchronize,
    *,
    rounds: int,
    max_warmup: int,
    count_compiles: Callable[[], int],
    iterations: int | None = None,
    watch: Watch | None = None,
    setup: Callable[[], tuple[Any, ...]] | None = None,
    memory: Callable[[], tuple[int | None, int | None]] | None = None,
) -> CallTiming:
    """Time `rounds` samples of function(*arguments, **keywords), each call waited for, after at most max_warmup calls.

    `iterations` calls make a sample; None: as many as the clock needs, found after the warm-up. `setup` gives each
    call's first arguments outside of its time; a sample is then one call. With max_warmup 0 the very first call is the
    first sample, a sample is one call, what it compiles belongs to it, and nothing is taken again. `memory` asks for
    the peaks of memory, at the price of one more call, and says what the device has in use and had at most, in bytes.

    Raises MeasurementError where the callable returns what has done nothing yet, or something slows this process; with
    a watch, DeviceUnavailableError where the device is lost.
    """
    with RepeatedCall(function, arguments, keywords, synchronize, setup=setup) as call:
        first_s = call.first_s() if max_warmup else None
        memory_before = memory() if memory else None
        with no_instrumentation(), no_collection():
            steady, num_calls = False, 1
            if first_s is None:
                samples_s, watched, num_attempts = _attempts(lambda: _from_the_first(call, rounds), watch, most=1)
                compiles_before = count_compiles()
            else:
                latest_s, steady = warm_up(lambda: call.seconds(1), earlier=[first_s], max_repeats=max_warmup)
                num_calls = 1 if setup else iterations or _iterations(call, latest_s)
                compiles_before = count_compiles()
                samples_s, watched, num_attempts = _attempts(lambda: _samples(call, num_calls, rounds), watch)
            check_not_slowed()
            timing = CallTiming(
                samples_s=samples_s,
                steady=steady,
                num_late_compiles=count_compiles() - compiles_before,
                iterations=num_calls,
                overhead_s=_shortest_s(call.of_nothing(), num_calls) / num_calls,
                disturbed=watched.disturbed,
                is_partly_disturbed=watched.disturbed is None and num_attempts > 1,
                state=watched.state,
                result=call.result,
            )
        if memory is None or memory_before is None:
            return timing
        added = _added_bytes(memory_before, memory())
        device_peak_bytes, why = (None, added) if isinstance(added, str) else (added, "")
        with no_instrumentation():
            peak_bytes = call.peak_bytes()
        return replace(timing, python_peak_bytes=peak_bytes, device_peak_bytes=device_peak_bytes, no_device_peak=why)


def _added_bytes(before: tuple[int | None, int | None], after: tuple[int | None, int | None]) -> int | str:
    """Returns by how much the peak exceeds what was in use before, each as (in use, peak); in words why nobody can tell
    where nothing counts them, and where the peak did not rise: it then says nothing of these calls."""
    (used_bytes, earlier_bytes), peak_bytes = before, after[1]
    if used_bytes is None or earlier_bytes is None or peak_bytes is None:
        return "nothing counts this device's memory"
    if peak_bytes <= earlier_bytes:
        return "jax's count did not rise: an earlier call needed as much, or the memory is not jax's"
    return peak_bytes - used_bytes


def _samples(call: RepeatedCall, num_calls: int, rounds: int) -> tuple[float, ...]:
    samples_s = []
    if num_calls > 1:
        call.seconds(num_calls)  # reading the device's state has displaced what a short call has in its caches
    for _ in range(rounds):
        samples_s.append(call.seconds(num_calls) / num_calls)
        gc.collect(0)  # what a call leaves behind in cycles does not pile up; quick, for it looks at the newest alone
    return tuple(samples_s)


def _from_the_first(call: RepeatedCall, rounds: int) -> tuple[float, ...]:
    return (call.first_s(), *_samples(call, 1, rounds - 1))


def _iterations(call: RepeatedCall, latest_s: float) -> int:
    """Returns the smallest power of two of calls that lasts long enough for the clock: a power, so that it seldom
    changes from run to run. 1 for a call that takes no time at all."""
    long_enough_s = max(SHORTEST_SAMPLE_S, STEPS_A_SAMPLE * clock_step_s())
    if latest_s >= max(LONG_FOR_CERTAIN_S, long_enough_s):
        return 1
    num_calls, lasted_s = 1, _shortest_s(call, 1)
    while lasted_s < long_enough_s and num_calls < MAX_ITERATIONS:
        num_calls *= 2
        lasted_s = _shortest_s(call, num_calls)
    return num_calls if lasted_s > 0 else 1


def _shortest_s(call: RepeatedCall, num_calls: int) -> float:
    return min(call.seconds(num_calls) for _ in range(REPEATS))


def _attempts(
    take: Callable[[], tuple[float, ...]], watch: Watch | None, most: int = MAX_ATTEMPTS
) -> tuple[tuple[float, ...], Watched, int]:
    """Returns the samples of the last attempt, what was seen meanwhile, and how many attempts there were."""
    if watch is None:
        return take(), Watched(), 1
    for attempt in range(most):
        watch.begin()
        samples_s = take()
        watched = watch.end()
        if watched.disturbed is None:
            return samples_s, watched, attempt + 1
    reason = f"{most} of {most} attempts disturbed: {watched.disturbed}"
    return samples_s, replace(watched, disturbed=reason), most


@contextmanager
def no_instrumentation() -> Iterator[None]:
    """Everything is put back at the end, after an error too."""
    with ExitStack() as at_the_end:
        _pause_tracer(at_the_end)
        _pause_profiler(at_the_end)
        _pause_monitoring(at_the_end)
        yield


def _pause_tracer(at_the_end: ExitStack) -> None:
    if (tracer := sys.gettrace()) is not None:
        sys.settrace(None)
        at_the_end.callback(sys.settrace, tracer)
    if (of_threads := threading.gettrace()) is not None:
        threading.settrace(None)
        at_the_end.callback(threading.settrace, of_threads)


def _pause_profiler(at_the_end: ExitStack) -> None:
    profiler: Any = sys.getprofile()
    if callable(profiler):
        sys.setprofile(None)
        at_the_end.callback(sys.setprofile, profiler)
    elif profiler is not None:  # a cProfile.Profile before Python 3.12, which setprofile would take and could not call
        profiler.disable()
        at_the_end.callback(profiler.enable)
    if (of_threads := threading.getprofile()) is not None:
        threading.setprofile(None)
        at_the_end.callback(threading.setprofile, of_threads)


def _pause_monitoring(at_the_end: ExitStack) -> None:
    """Events that a tool set for single code objects stay set, so its callbacks are taken off as well."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return
    events = {name: event for name, event in vars(monitoring.events).items() if name.isupper() and event}
    if "BRANCH_LEFT" in events:
        events.pop("BRANCH", None)  # since Python 3.14 it stands for two events
    for tool in MONITORING_TOOLS:
        if monitoring.get_tool(tool) is None:
            continue
        for event in events.values():
            if (callback := monitoring.register_callback(tool, event, None)) is not None:
                at_the_end.callback(monitoring.register_callback, tool, event, callback)
        if everywhere := monitoring.get_events(tool):
            monitoring.set_events(tool, 0)
            at_the_end.callback(monitoring.set_events, tool, everywhere)
