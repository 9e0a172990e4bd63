"""A fake accelerator with a fault in it, which a function or a table of this file has under the name of $PLANTED.

Its times are those of fake_device.py with the noise of real nights: 0.2 % within a process and 0.3 % between
processes. Beside them it counts joules, at WATTS while a batch runs, and the most bytes that it had. A function changes
what the accelerator, its engine or the product's own modules do in every process of the run, and returns what
`fake_device.install` is to be given besides.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import fake_device
from fake_device import FakeBackend, FakeEngine, FakeRuntime

from pytest_npubench.backends.telemetry.state import DeviceState
from pytest_npubench.core.measurement import CacheState, CompileRecord, Phase, Request, Run, Segment
from pytest_npubench.plugin.settings import REMEASURING
from pytest_npubench.suites.buckets import energy

NOISE = {"noise": 0.002, "process_noise": 0.003}
WATTS = 50.0
NUM_BYTES = 2**30
Changes = Mapping[str, Any]


class Meter:
    """The joules of all batches of this process, as a counter of them goes that runs `speed` times as fast."""

    joules = 1.0
    speed = 1.0

    def read(self) -> DeviceState:
        return DeviceState.now(energy_j=Meter.joules)

    def close(self) -> None:
        """There is nothing to let go of."""


def install() -> FakeBackend:
    """The backend to offer through pytest_npubench_backends. What is planted in a test's own file is not known here."""
    telemetry, alter = FakeRuntime.telemetry, lambda _, run: run
    FakeRuntime.telemetry = lambda self: telemetry(self) or Meter()
    FakeRuntime.peak_memory_bytes = lambda self: NUM_BYTES
    energy.LEAST_S = 0.0
    changes = {**NOISE, **_planted(os.environ.get("PLANTED", ""))}
    alter = changes.pop("alter", alter)

    def metered(requests: Sequence[Request], run: Run) -> Run:
        Meter.joules += WATTS * Meter.speed * run.e2e_s
        return alter(requests, run)

    return fake_device.install(**changes, alter=metered)


def _planted(name: str) -> Changes:
    if name in PARTS:
        return _timed(PARTS[name])
    if name in WHOLES:
        return _whole(lambda: WHOLES[name])
    return GIVEN[name] if name in GIVEN else globals().get(name, dict)()


def _timed(factor: Callable[[Segment], float]) -> Changes:
    """Each part of a batch takes `factor` times as long."""

    def alter(_: Sequence[Request], run: Run) -> Run:
        return _with_parts(run, [replace(part, duration_s=part.duration_s * factor(part)) for part in run.segments])

    return {"alter": alter}


def _with_parts(run: Run, parts: Sequence[Segment]) -> Run:
    return replace(run, segments=tuple(parts), e2e_s=sum(part.duration_s for part in (*parts, *run.moves)))


def _whole(factor: Callable[[], float]) -> Changes:
    """Each batch, whatever its parts say, takes `factor` times as long by the clock."""
    return {"alter": lambda _, run: replace(run, e2e_s=run.e2e_s * factor())}


def _is_decode(part: Segment) -> bool:
    return part.phase is Phase.DECODE


PARTS: Mapping[str, Callable[[Segment], float]] = {
    "decode_of_one_bucket": lambda part: 1.2 if _is_decode(part) and part.bucket == 32 else 1.0,
    "decode_of_one_bucket_a_little": lambda part: 1.03 if _is_decode(part) and part.bucket == 32 else 1.0,
    "prefill_of_one_bucket": lambda part: 1.1 if part.phase is Phase.PREFILL and part.bucket == 64 else 1.0,
    "everything": lambda _: 1.2,
    "everything_a_little": lambda _: 1.03,
    "a_skipped_layer": lambda _: 0.5,
    "nothing_computed": lambda _: 0.01,
    "a_little_faster": lambda _: 0.997,
}
"""How many times as long each part of a batch takes. Of two layers one is skipped; without work launches are left."""
WHOLES = {
    "a_clock_in_milliseconds": 1000.0,
    "a_clock_too_slow": 0.001,
    "a_clock_that_stands": 0.0,
    "a_clock_that_goes_back": -1.0,
    "a_clock_that_tells_no_number": float("nan"),
}
"""By the clock alone, the same of whole batches."""
GIVEN: Mapping[str, Changes] = {
    "another_driver": {"driver": "fake driver 2"},
    "a_throttled_device": {"throttled": float("inf")},
    "no_memory": {"out_of_memory": True},
    "a_noisier_night": {"noise": 0.006},
}
"""Arguments of `fake_device.install`."""

# -- what takes longer


def first_step() -> Changes:
    """The first decode step of a batch takes three times as long."""

    def alter(_: Sequence[Request], run: Run) -> Run:
        first = next((index for index, part in enumerate(run.segments) if _is_decode(part)), None)
        return _with_parts(
            run,
            [
                replace(part, duration_s=part.duration_s * (3 if index == first else 1))
                for index, part in enumerate(run.segments)
            ],
        )

    return {"alter": alter}


def a_tail() -> Changes:
    """One run in six of each batch takes three times as long."""
    runs = Counter[Sequence[Request]]()

    def alter(requests: Sequence[Request], run: Run) -> Run:
        runs[tuple(requests)] += 1
        return replace(run, e2e_s=run.e2e_s * (3 if runs[tuple(requests)] % 6 == 0 else 1))

    return {"alter": alter}


def moves_of_the_cache() -> Changes:
    fake_device.MOVE_S_PER_TOKEN *= 5
    return {}


def compiling() -> Changes:
    return _compiling(1.5)


def _compiling(factor: float) -> Changes:
    def compile(self: FakeRuntime, name: str) -> None:
        self.compiles.append(CompileRecord(name=name, compile_s=0.25 * factor, cache=CacheState.COLD))

    FakeRuntime.compile = compile
    return {}


def compiling_while_measured() -> Changes:
    """The twentieth batch of a process has a shape that nobody compiled."""
    calls = itertools.count()

    def late(engine: FakeEngine, _: Sequence[Request]) -> None:
        engine.runtime.num_late += next(calls) == 20

    return {"on_run": late}


# -- work that is left out


def half_of_the_decode_steps() -> Changes:
    work = FakeEngine._work
    FakeEngine._work = staticmethod(lambda requests: _every_second_step(work(requests)))
    return {}


def _every_second_step(work: Sequence[tuple[Phase, int]]) -> list[tuple[Phase, int]]:
    prefills = [item for item in work if item[0] is Phase.PREFILL]
    return prefills + [item for item in work if item[0] is Phase.DECODE][::2]


def half_of_the_batch() -> Changes:
    """Only the first of two prompts is prefilled."""
    work = FakeEngine._work
    FakeEngine._work = staticmethod(lambda requests: work(requests)[len(requests) // 2 :])
    return {}


# -- memory, and what counts energy


def memory_that_grows() -> Changes:
    """By a thousandth with each look at it."""
    looks = itertools.count()
    FakeRuntime.peak_memory_bytes = lambda self: NUM_BYTES + NUM_BYTES // 1000 * next(looks)
    return {}


def a_meter_that_stands() -> Changes:
    Meter.speed = 0.0
    return {}


def a_meter_twice_as_fast() -> Changes:
    Meter.speed = 2.0
    return {}


# -- LENS's own arithmetic


def one_step_too_many() -> Changes:
    return _steps(lambda steps: steps + 1)


def one_step_too_few() -> Changes:
    return _steps(lambda steps: steps - (steps > 0))


def a_tenth_more_steps() -> Changes:
    return _steps(lambda steps: steps + (steps + 9) // 10)


def _steps(changed: Callable[[Any], Any]) -> Changes:
    """Of the numbers of decode steps that the predictor counts."""
    from pytest_npubench.predictors.lens import LensPredictor

    checked = LensPredictor._checked

    def counted(self: LensPredictor, *lengths: Any) -> Any:
        inputs, steps = checked(self, *lengths)
        return inputs, changed(steps)

    LensPredictor._checked = counted
    return {}


def a_prefill_forgotten() -> Changes:
    """LENS adds up one prefill for the whole batch."""
    from pytest_npubench.predictors import lens

    prefills = lens.batch_prefills
    lens.batch_prefills = lambda inputs, spans, _: prefills(inputs, spans, True)
    return {}


# -- the wrong bucket, clock or device


def a_larger_bucket() -> Changes:
    """Decode steps run in the bucket above their own."""

    def alter(_: Sequence[Request], run: Run) -> Run:
        return _with_parts(
            run, [replace(part, bucket=2 * part.bucket) if _is_decode(part) else part for part in run.segments]
        )

    return {"alter": alter}


def other_buckets_than_declared() -> Changes:
    FakeEngine.declared = (16, 48, 64)
    return {}


def a_bucket_that_does_not_compile() -> Changes:
    load = FakeEngine.load

    def loaded(self: FakeEngine, buckets: Sequence[int]) -> None:
        if 32 in buckets:
            raise OSError("the compiler gave up on bucket 32")
        load(self, buckets)

    FakeEngine.load = loaded
    return {}


def a_stair_inside_a_bucket() -> Changes:
    """Prompts of more than 30 tokens take 20 % longer than the others of their bucket."""

    def alter(requests: Sequence[Request], run: Run) -> Run:
        is_long = 30 < max(item.input_tokens for item in requests) <= 32
        return replace(run, e2e_s=run.e2e_s * (1.2 if is_long else 1.0))

    return {"alter": alter}


def another_device() -> Changes:
    stack = FakeRuntime.stack
    FakeRuntime.stack = lambda self: replace(stack(self), device_class="Fake accelerator 2")
    return {}


def a_lost_device() -> Changes:
    """The device is gone after fifty batches."""
    calls = itertools.count()

    def lost(_: FakeEngine, __: Sequence[Request]) -> None:
        if next(calls) >= 50:
            raise OSError("the accelerator fell off the bus")

    return {"on_run": lost}


def a_suspect_that_cannot_be_measured_again() -> Changes:
    def broken(_: FakeEngine, __: Sequence[Request]) -> None:
        if REMEASURING in os.environ:
            raise OSError("the accelerator fell off the bus")

    return {**_timed(PARTS["decode_of_one_bucket"]), "on_run": broken}


# -- other units, directions and definitions of a metric


def milliseconds_for_seconds() -> Changes:
    return _metrics(lambda metric: replace(metric, unit="ms", value=metric.value * 1e3, samples=_times(metric, 1e3)))


def a_unit_that_hides_a_slowdown() -> Changes:
    """The number is that of every night, of a thousand times as long."""
    return _metrics(lambda metric: replace(metric, unit="ks"))


def the_other_direction() -> Changes:
    return _metrics(lambda metric: replace(metric, better="higher"))


def _times(metric: Any, factor: float) -> tuple[float, ...]:
    return tuple(value * factor for value in metric.samples)


def _metrics(changed: Callable[[Any], Any]) -> Changes:
    """Of the times of the profile kind."""
    from pytest_npubench.suites.buckets.kinds.profile import ProfileKind

    judge = ProfileKind.judge

    def judged(self: ProfileKind, *about: Any) -> Any:
        found = judge(self, *about)
        times = ("ttft_s", "tbt_s")
        return replace(found, metrics=tuple(changed(one) if one.name in times else one for one in found.metrics))

    ProfileKind.judge = judged
    return {}


# -- what changes nothing


def compiling_a_little_longer() -> Changes:
    return _compiling(1.05)


def a_slow_first_process() -> Changes:
    """The first process alone is 4 % slower, as a cold machine is."""
    return _timed(lambda _: 1.0 if REMEASURING in os.environ else 1.04)


def one_batch_interrupted() -> Changes:
    """One batch of a process takes three times as long."""
    calls = itertools.count()
    return _whole(lambda: 3.0 if next(calls) == 33 else 1.0)


def another_order_of_addition() -> Changes:
    """What a batch takes is added up from its end."""
    return {
        "alter": lambda _, run: replace(run, e2e_s=sum(part.duration_s for part in (*run.moves, *run.segments[::-1])))
    }


def another_release() -> Changes:
    """Of every library that is on record."""
    from pytest_npubench.store import fingerprint

    installed = fingerprint.installed
    fingerprint.installed = lambda names: tuple((name, f"{release}.1") for name, release in installed(names))
    return {}


def another_host_name() -> Changes:
    import socket

    socket.gethostname = lambda: "another-host"
    return {}
