"""A fake accelerator with hand-calculable times, for what no test can do to a real one: lose it, break it, have four.

Tests copy this file into their projects, whose conftest.py calls `install`. Its devices are named "Fake accelerator",
so no result of theirs can pass for a measured one. In bucket b a prefill takes b * 100 us and a decode step b * 10 us;
the copy of the cache into bucket b takes b * 1 us. `install` changes what a test wants to see go wrong. Each engine
leaves a line in engines.txt: its number, and whether its process measures suspects again.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pytest_npubench.backends.protocol import Device, Probe, Stack
from pytest_npubench.backends.telemetry.state import DeviceState
from pytest_npubench.core.buckets import bucket_of
from pytest_npubench.core.measurement import CacheState, CompileRecord, Move, Phase, Request, Run, Segment
from pytest_npubench.engines.protocol import Engine
from pytest_npubench.plugin import fresh_process, outcome
from pytest_npubench.plugin.settings import REMEASURING
from pytest_npubench.suites.buckets import reference_buckets

NAME = "Fake accelerator"
PREFILL_S_PER_TOKEN = 100e-6
DECODE_S_PER_TOKEN = 10e-6
MOVE_S_PER_TOKEN = 1e-6
ENGINES = Path("engines.txt")


@dataclass(kw_only=True)
class Faults:
    """What is to go wrong. `on_run` sees every batch before it runs and may raise; `alter` changes what it took.

    noise is the largest relative deviation of a run. process_noise is the standard deviation of a process in each
    bucket and phase, drawn anew for each engine that is made in this folder. slower_by is what each device takes longer
    than the one before it.
    """

    num_devices: int = 1
    absent: str = ""
    lost: str = ""
    throttled: float = 0
    out_of_memory: bool = False
    noise: float = 0.0
    process_noise: float = 0.0
    slower_by: float = 0.0
    sleep_s: float = 0.0
    driver: str = "fake driver 1"
    on_run: Callable[[FakeEngine, Sequence[Request]], None] = lambda engine, requests: None
    alter: Callable[[Sequence[Request], Run], Run] = lambda requests, run: run


@dataclass
class FakeBackend:
    """Takes the place of the OpenVINO backend, as families are fixed. Each probe leaves a line in probes.txt."""

    faults: Faults
    family: str = "openvino"

    def probe(self, timeout_s: float) -> Probe:
        with Path("probes.txt").open("a", encoding="utf-8") as file:
            file.write(f"{self.family}\n")
        if self.faults.absent:
            return Probe(reason=self.faults.absent)
        return Probe(
            devices=tuple(
                Device(family=self.family, ordinal=ordinal, name=NAME) for ordinal in range(self.faults.num_devices)
            )
        )

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> FakeRuntime:
        if self.faults.lost:
            raise RuntimeError(self.faults.lost)
        return FakeRuntime(devices=devices, faults=self.faults)


@dataclass
class FakeRuntime:
    devices: Sequence[Any]
    faults: Faults
    compiles: list[CompileRecord] = field(default_factory=list)
    num_late: int = 0

    @property
    def num_process_compiles(self) -> int:
        return len(self.compiles) + self.num_late

    def compile(self, name: str) -> None:
        self.compiles.append(CompileRecord(name=name, compile_s=0.25, cache=CacheState.COLD))

    def synchronize(self, value: Any) -> None:
        """There is nothing to wait for."""

    def telemetry(self) -> FakeTelemetry | None:
        return FakeTelemetry(self.faults.throttled) if self.faults.throttled else None

    def stack(self) -> Stack:
        return Stack(device_class=NAME, driver=self.faults.driver, runtime="fake runtime", compiler="fake compiler")


class FakeTelemetry:
    """Says the first so many times that the device is too hot."""

    def __init__(self, num_hot: float) -> None:
        self._num_hot = num_hot

    def read(self) -> DeviceState:
        self._num_hot -= 1
        return DeviceState.now(throttle_reasons=("hw_thermal_slowdown",) if self._num_hot >= 0 else ())

    def close(self) -> None:
        """There is nothing to let go of."""


class FakeEngine(Engine):
    """Walks a batch through the buckets as the reference decoder does, and adds up the times of the module's table."""

    name = "fake"
    prefill_shared = False
    finished = "freeze"

    def __init__(self, runtime: FakeRuntime, buckets: Sequence[int], batch_size: int) -> None:
        if runtime.faults.out_of_memory:
            raise MemoryError("the fake accelerator has no memory left\nsecond line of a long message")
        self.runtime, self.buckets, self.batch_size = runtime, tuple(buckets), batch_size
        self._wobble = itertools.cycle((0.0, 1.0, -1.0, 0.5, -0.5, 0.25, -0.25))
        self._number = _count_engine()
        self._loaded: set[int] = set()
        self._moves: set[tuple[int, int]] = set()

    @property
    def compiles(self) -> Sequence[CompileRecord]:
        return self.runtime.compiles

    def load(self, buckets: Sequence[int]) -> None:
        for bucket in buckets:
            if bucket not in self._loaded:
                self._loaded.add(bucket)
                self.runtime.compile(f"prefill-fake-{bucket}")
                self.runtime.compile(f"decode-fake-{bucket}")
        for pair in pairwise(self.buckets):
            if set(pair) <= self._loaded and pair not in self._moves:
                self._moves.add(pair)
                self.runtime.compile(f"move-fake-{pair[0]}-{pair[1]}")

    def run(self, requests: Sequence[Request]) -> Run:
        faults = self.runtime.faults
        time.sleep(faults.sleep_s)
        faults.on_run(self, requests)
        segments: list[Segment] = []
        moves: list[Move] = []
        factor = (1 + faults.noise * next(self._wobble)) * (1 + faults.slower_by * self.runtime.devices[0].ordinal)
        bucket = bucket_of(self.buckets, min(item.input_tokens for item in requests))
        work = self._work(requests)
        for phase, tokens in work:
            wanted = bucket_of(self.buckets, tokens)
            while bucket < wanted:
                larger = self.buckets[self.buckets.index(bucket) + 1]
                moves.append(Move(from_bucket=bucket, to_bucket=larger, duration_s=larger * MOVE_S_PER_TOKEN * factor))
                bucket = larger
            per_token = PREFILL_S_PER_TOKEN if phase is Phase.PREFILL else DECODE_S_PER_TOKEN
            duration_s = bucket * per_token * factor * self._of_process(phase, bucket)
            segments.append(Segment(phase=phase, bucket=bucket, num_steps=1, duration_s=duration_s))
        num_steps = sum(phase is Phase.DECODE for phase, _ in work)
        run = Run(
            e2e_s=sum(part.duration_s for part in (*segments, *moves)),
            segments=tuple(segments),
            moves=tuple(moves),
            num_tokens=sum(min(item.output_tokens, 1 + num_steps) for item in requests),
        )
        return faults.alter(requests, run)

    def time_move(self, from_bucket: int, to_bucket: int) -> Move:
        factor = 1 + self.runtime.faults.noise * next(self._wobble)
        return Move(from_bucket=from_bucket, to_bucket=to_bucket, duration_s=to_bucket * MOVE_S_PER_TOKEN * factor)

    def _of_process(self, phase: Phase, bucket: int) -> float:
        seeded = random.Random(f"{self._number}/{phase.value}/{bucket}")
        return 1 + self.runtime.faults.process_noise * seeded.gauss(0.0, 1.0)

    @staticmethod
    def _work(requests: Sequence[Request]) -> list[tuple[Phase, int]]:
        """Each prefill with its prompt, then each decode step with the longest KV length of the batch."""
        prompts = sorted(item.input_tokens for item in requests)
        steps = [
            max(item.input_tokens + min(step + 1, item.output_tokens - 1) for item in requests)
            for step in range(max(item.output_tokens for item in requests) - 1)
        ]
        return [(Phase.PREFILL, tokens) for tokens in prompts] + [(Phase.DECODE, tokens) for tokens in steps]


def _count_engine() -> int:
    number = len(ENGINES.read_text(encoding="utf-8").splitlines()) if ENGINES.exists() else 0
    with ENGINES.open("a", encoding="utf-8") as file:
        file.write(f"{number} {'again' if REMEASURING in os.environ else 'first'}\n")
    return number


def install(**faults: Any) -> FakeBackend:
    """The backend to offer through pytest_npubench_backends. From now on engines are the fake's, and nothing waits."""
    with suppress(KeyError):
        faults["sleep_s"] = float(os.environ["FAKE_SLEEP_S"])
    fresh_process.COOLDOWN_S = 0.0
    outcome.UPLOAD_TIMEOUT_S = 0.2
    reference_buckets.ReferenceBuckets.tells_answers = False
    reference_buckets.static_bucket_engine = lambda runtime, plan: FakeEngine(runtime, plan.buckets, plan.batch_size)
    return FakeBackend(Faults(**faults))
