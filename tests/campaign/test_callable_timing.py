"""Timing a callable: what is called how often, what is waited for, and how many calls a sample needs."""

import asyncio
import gc
import sys
import timeit
from time import perf_counter, sleep

import pytest

from pytest_npubench.campaign import repeated_call
from pytest_npubench.campaign.callable_timing import MAX_ITERATIONS, SHORTEST_SAMPLE_S, time_callable
from pytest_npubench.errors import MeasurementError


class Log:
    """Counts calls of a function and what was waited for; compiles in the calls whose number it is told."""

    def __init__(self, compiles_in=()):
        self.calls = []
        self.waited_for = []
        self.compiles_in = compiles_in
        self.num_compiles = 0

    def function(self, *arguments, **keywords):
        self.calls.append((arguments, keywords))
        self.num_compiles += len(self.calls) in self.compiles_in
        return len(self.calls)

    def time(self, rounds=5, max_warmup=4, iterations=1, setup=None):
        return time_callable(
            self.function,
            (1, 2),
            {"three": 3},
            self.waited_for.append,
            rounds=rounds,
            max_warmup=max_warmup,
            count_compiles=lambda: self.num_compiles,
            iterations=iterations,
            setup=setup,
        )


def timed(function, *, synchronize=lambda value: None, rounds=5, max_warmup=3, **options):
    return time_callable(
        function, (), {}, synchronize, rounds=rounds, max_warmup=max_warmup, count_compiles=lambda: 0, **options
    )


def test_each_call_is_waited_for():
    log = Log()
    timing = log.time()
    assert len(timing.samples_s) == 5
    assert all(sample_s >= 0 for sample_s in timing.samples_s)
    assert 7 <= len(log.calls) <= 9  # 2 to 4 to warm up
    assert log.waited_for == list(range(1, len(log.calls) + 1))
    assert set(map(str, log.calls)) == {str(((1, 2), {"three": 3}))}
    assert timing.num_late_compiles == 0


def test_a_fixed_number_of_calls_makes_a_sample():
    log = Log()
    timing = log.time(rounds=5, max_warmup=2, iterations=7)
    assert timing.iterations == 7
    assert len(log.calls) == 2 + 6 * 7  # before the first sample as many once more
    assert log.waited_for == list(range(1, len(log.calls) + 1))


@pytest.mark.parametrize(("max_warmup", "num_calls"), [(0, 5), (1, 6), (2, 7)])
def test_so_few_calls_come_before_the_samples(max_warmup, num_calls):
    """With 0 the first call, which compiles, is the first sample."""
    log = Log(compiles_in=(1,))
    timing = log.time(rounds=5, max_warmup=max_warmup)
    assert (len(log.calls), len(timing.samples_s), timing.num_late_compiles) == (num_calls, 5, 0)
    assert timing.result == 1


def test_a_first_call_is_in_the_samples():
    pauses = iter([0.02, 0, 0])
    first_s, *others_s = timed(lambda: sleep(next(pauses)), rounds=3, max_warmup=0).samples_s
    assert min(others_s) < 0.02 <= first_s


@pytest.mark.parametrize("max_warmup", [0, 4])
def test_each_call_has_fresh_arguments_that_cost_it_no_time(max_warmup):
    made = []

    def setup():
        sleep(0.005)
        made.append(len(made))
        return (made[-1],)

    log = Log()
    timing = log.time(iterations=None, max_warmup=max_warmup, setup=setup)
    assert [arguments for arguments, _ in log.calls] == [(number, 1, 2) for number in made]
    assert timing.iterations == 1
    assert min(timing.samples_s) < 0.005
    waited_for = [value for value in log.waited_for if isinstance(value, tuple)]
    assert waited_for == [(number,) for number in made]  # before the clock is read


def test_coroutines_have_fresh_arguments_too():
    inputs, seen = iter(range(100)), []

    async def function(value):
        seen.append(value)

    timed(function, setup=lambda: (next(inputs),))
    assert seen == list(range(len(seen)))
    with pytest.raises(MeasurementError, match="setup returned a list; want a tuple"):
        timed(len, setup=lambda: [()])


def test_compiles_while_warming_up_are_not_late():
    assert Log(compiles_in=(1, 2)).time(max_warmup=2).num_late_compiles == 0
    assert Log(compiles_in=(1, 3, 7)).time(max_warmup=2).num_late_compiles == 2


def test_the_device_is_waited_for_inside_the_time():
    """A wait that takes longer than anything else here shows up in every sample, which is then one call."""
    timing = timed(lambda: None, synchronize=lambda value: sleep(0.005), rounds=4)
    assert min(timing.samples_s) >= 0.005
    assert timing.iterations == 1


class SteppingClock:
    """A clock that moves by what calls take, and by a step at each reading."""

    def __init__(self, monkeypatch, *, step_s=0.0):
        self.now_s = 0.0
        self._step_s = step_s
        monkeypatch.setattr(repeated_call, "perf_counter", self.read)

    def read(self):
        self.now_s += self._step_s
        return self.now_s

    def call(self, call_s):
        self.now_s += call_s


@pytest.mark.parametrize(
    ("call_s", "step_s", "iterations"),
    [
        (20e-6, 0.0, 1),
        (11e-6, 0.0, 1),
        (6e-6, 0.0, 2),
        (3e-6, 0.0, 4),
        (50e-9, 0.0, 256),
        (20e-6, 1e-6, 8),  # a clock of 1 us steps: 100 of them
        (0.0, 0.0, 1),
    ],
)
def test_a_sample_lasts_long_enough_for_the_clock(monkeypatch, call_s, step_s, iterations):
    clock = SteppingClock(monkeypatch, step_s=step_s)
    timing = timed(lambda: clock.call(call_s))
    assert timing.iterations == iterations
    assert timing.samples_s == pytest.approx([call_s + step_s / iterations] * 5)
    assert timing.overhead_s == pytest.approx(step_s / iterations)


def test_a_call_that_the_clock_hardly_sees_does_not_go_on_for_ever(monkeypatch):
    clock = SteppingClock(monkeypatch)
    assert timed(lambda: clock.call(1e-12), rounds=2).iterations == MAX_ITERATIONS


def test_a_short_call_agrees_with_timeit():
    def work():
        return sum(range(50))

    timing = timed(work, rounds=30)
    bare_s = min(timeit.repeat(work, number=2000, repeat=5)) / 2000
    assert timing.iterations > 1
    assert timing.iterations * sorted(timing.samples_s)[15] > SHORTEST_SAMPLE_S / 3
    assert 1 / 3 < min(timing.samples_s) / bare_s < 3
    assert 0 < timing.overhead_s < min(timing.samples_s) * 3


def test_what_a_coroutine_sleeps_is_in_every_sample():
    async def nap(seconds):
        await asyncio.sleep(seconds)
        return "rested"

    waited_for = []
    timing = time_callable(nap, (0.010,), {}, waited_for.append, rounds=3, max_warmup=2, count_compiles=lambda: 0)
    assert min(timing.samples_s) >= 0.010
    assert timing.iterations == 1
    assert waited_for == ["rested"] * 5


def test_short_coroutines_are_several_to_a_sample():
    loops = set()

    async def short():
        loops.add(asyncio.get_running_loop())

    timing = timed(short)
    assert timing.iterations > 1
    assert len(loops) == 1
    assert loops.pop().is_closed()


class Traced:
    """A tracer written in Python that counts how often a function is called under it."""

    def __init__(self, function):
        self._code = function.__code__
        self.num_calls = 0

    def __call__(self, frame, event, argument):
        self.num_calls += event == "call" and frame.f_code is self._code
        return self


@pytest.mark.parametrize(
    ("install", "installed"), [(sys.settrace, sys.gettrace), (sys.setprofile, sys.getprofile)], ids=["trace", "profile"]
)
@pytest.mark.parametrize("fails", [False, True], ids=["", "with an error"])
def test_a_tracer_sees_the_first_call_alone_and_is_back_after(install, installed, fails):
    calls = []

    def work():
        calls.append(perf_counter())
        if fails and len(calls) == 4:
            raise ValueError("the callable's own")

    tracer, before = Traced(work), installed()
    install(tracer)
    try:
        try:
            timed(work, iterations=2)
        except ValueError:
            assert fails
        back = installed()
        work()
    finally:
        install(before)
    assert back is tracer
    assert tracer.num_calls == 2  # coverage has seen the callable once, and sees what comes after
    assert len(calls) > tracer.num_calls


@pytest.mark.parametrize("was_on", [True, False])
def test_garbage_is_collected_between_samples_only(was_on):
    seen, collections = [], []

    def leaks():
        cycle = []
        cycle.append(cycle)
        seen.append((gc.isenabled(), len(collections)))

    def started(phase, info):
        if phase == "start":
            collections.append(info["generation"])

    (gc.enable if was_on else gc.disable)()
    gc.callbacks.append(started)
    try:
        timed(leaks, rounds=4, max_warmup=2, iterations=1000)
        assert gc.isenabled() is was_on
    finally:
        gc.callbacks.remove(started)
        gc.enable()
    samples = seen[2 + 1000 :]
    assert not any(on for on, _ in seen[1:])
    for start in range(0, 4000, 1000):  # the count of collections stands still within a sample
        assert len({count for _, count in samples[start : start + 1000]}) == 1
    assert len({count for _, count in samples}) == 4


def test_the_collector_is_on_again_after_an_error():
    def fails():
        if not gc.isenabled():
            raise ValueError("the callable's own")

    with pytest.raises(ValueError, match="the callable's own"):
        timed(fails)
    assert gc.isenabled()


def test_a_generator_has_done_nothing_yet():
    with pytest.raises(MeasurementError, match="which does nothing until it is iterated over"):
        timed(lambda: (number for number in range(3)))


@pytest.mark.parametrize("interrupted", range(9))
def test_an_interrupt_does_not_keep_a_short_call_at_too_few(monkeypatch, interrupted):
    clock = SteppingClock(monkeypatch)
    interrupts_s = iter([*[0.0] * interrupted, 1e-3])
    assert timed(lambda: clock.call(6e-6 + next(interrupts_s, 0.0)), max_warmup=2).iterations == 2
