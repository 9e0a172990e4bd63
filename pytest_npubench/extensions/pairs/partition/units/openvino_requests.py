"""Requests to two OpenVINO devices at once, and the three ways of being told of their end.

    wait        block on the unit with more parts, then on the other
    polling     ask each running request in turn
    callback    OpenVINO's own thread puts the unit into a queue

None takes a second Python thread of ours, which would spin under the interpreter's lock. On two processors that are
both units, a round trip takes 50 us by each of them; polling has a p99 of milliseconds, since it takes a processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import MeasurementError, PartitionError, UnitLostError

Floats = NDArray[np.float32]
MECHANISMS = ("wait", "polling", "callback")
CALLBACK_CHECK_S = 1.0  # a request that failed may never call back


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A request and the tensors bound to it, which alone keep the memory that they share alive. Where it cannot write
    into the result itself, `copied` is (target, source)."""

    request: Any
    tensors: tuple[Any, ...] = ()
    copied: tuple[Floats, Floats] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRun:
    """Seconds by unit. busy_s: the latency that OpenVINO measured for its requests, from when each began to run, and
    its copies; copy_s: those copies; ended_s: from the common start until this process was told of its last end."""

    busy_s: Mapping[str, float]
    copy_s: Mapping[str, float]
    ended_s: Mapping[str, float]


class Requests:
    """Runs work on units; `names` are what a lost unit is called."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._ended: SimpleQueue[str] = SimpleQueue()

    def make(self, unit: str, graph: Any, *, calls_back: bool) -> Any:
        """Returns a request on a compiled graph. Raises MeasurementError where memory is short."""
        with memory_for(f"a request on {self._names[unit]}"):
            request = graph.create_infer_request()
        if calls_back:
            request.set_callback(self._ended.put, unit)
        return request

    def run_once(self, unit: str, request: Any) -> None:
        """Outside of any timing: a GPU builds its kernels for a shape at its first run."""
        try:
            request.infer()
        except RuntimeError as error:
            raise UnitLostError(f"{self._names[unit]} died: {words(error)}") from error
        self._forget_ends()

    def run(self, work: Mapping[str, Sequence[Work]], mechanism: str) -> InferenceRun:
        """Runs each unit's work in order, all units at once. Raises UnitLostError."""
        next_one: Callable[[Mapping[str, Work]], str] = {
            "polling": _polled,
            "wait": lambda running: next(iter(running)),
            "callback": self._called_back,
        }[mechanism]
        left = {unit: list(reversed(work[unit])) for unit in sorted(work, key=lambda unit: -len(work[unit]))}
        busy_s, copied_s, ended_s = (dict.fromkeys(left, 0.0) for _ in range(3))
        running: dict[str, Work] = {}
        started_s = perf_counter()
        try:
            for unit in left:
                running[unit] = _started(left[unit].pop())
            while running:
                unit = next_one(running)
                running[unit].request.wait()
                copy_s = _copy(running[unit])
                busy_s[unit] += running[unit].request.latency / 1000 + copy_s  # OpenVINO says milliseconds
                copied_s[unit] += copy_s
                ended_s[unit] = perf_counter() - started_s
                if left[unit]:
                    running[unit] = _started(left[unit].pop())
                else:
                    del running[unit]
        except RuntimeError as error:
            lost = self._lost(running) or list(work)
            raise UnitLostError(f"{' or '.join(self._names[unit] for unit in lost)} died: {words(error)}") from error
        return InferenceRun(busy_s=busy_s, copy_s=copied_s, ended_s=ended_s)

    def _called_back(self, running: Mapping[str, Work]) -> str:
        while True:
            try:
                unit = self._ended.get(timeout=CALLBACK_CHECK_S)
            except Empty:
                unit = next((unit for unit, one in running.items() if one.request.wait_for(0)), "")
            if unit in running:
                return unit

    def _forget_ends(self) -> None:
        while not self._ended.empty():
            self._ended.get()

    def _lost(self, running: Mapping[str, Work]) -> list[str]:
        """Let those end that still run, or they would be busy when they are wanted next. Returns those that cannot."""
        lost = []
        for unit, work in running.items():
            try:
                work.request.wait()
            except RuntimeError:
                lost.append(unit)
        self._forget_ends()
        return lost


def check_mechanism(mechanism: str) -> str:
    """Raises PartitionError with the names there are."""
    if mechanism not in MECHANISMS:
        raise PartitionError(f"no mechanism {mechanism!r}; OpenVINO has {', '.join(MECHANISMS)}")
    return mechanism


@contextmanager
def memory_for(what: str) -> Iterator[None]:
    """Raises MeasurementError naming what found no memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        raise MeasurementError(f"no memory for {what}: {words(error)}") from error


def words(error: Exception) -> str:
    """What an OpenVINO exception says, without the lines that tell where in its source it arose."""
    lines = [line.strip() for line in str(error).splitlines()]
    return " ".join(line for line in lines if line and not line.startswith("Exception from ")) or type(error).__name__


def _started(work: Work) -> Work:
    work.request.start_async()
    return work


def _polled(running: Mapping[str, Work]) -> str:
    while True:
        for unit, work in running.items():
            if work.request.wait_for(0):
                return unit


def _copy(work: Work) -> float:
    if work.copied is None:
        return 0.0
    started_s = perf_counter()
    target, source = work.copied
    target[...] = source
    return perf_counter() - started_s
