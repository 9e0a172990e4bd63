"""Compiles the points of a campaign in processes of their own, as many at a time as the machine has room for.

A compiler that crashes or takes too much memory or time ends with its process: that binary's cases say so, and the rest
goes on with another process. Where one binary does not fit the device's memory, larger buckets of its step are not
tried: each would take minutes to say the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from pytest_npubench.campaign.rounds import failure_reason
from pytest_npubench.campaign.visits import Round, Visit
from pytest_npubench.core.measurement import CacheState, CompileRecord
from pytest_npubench.errors import CompileRefusedError, ConfigError, DeviceUnavailableError
from pytest_npubench.extensions.compilers.compiled.compiler import forget
from pytest_npubench.extensions.compilers.compiled.runtime import CompilerRuntime
from pytest_npubench.extensions.compilers.suites.programs import ProgramPoint
from pytest_npubench.processes.child import Child
from pytest_npubench.suites.buckets.bench import is_out_of_memory

PROCESS_BYTES = 4 * 2**30
"""What a compiler's process takes of a large model: 1.7 to 2.6 GB were seen."""
SHARE = 0.8  # of the machine's memory, for all processes together
PointT = TypeVar("PointT", bound=ProgramPoint)


class CompilerBench(Generic[PointT]):
    """start(memory_bytes): a compiler's process, which may take so much of this machine; raises OSError.
    request(point): what the compiler is asked. visit(facts): what a round keeps of its answer.
    alone: points whose compiler wants the memory of all, so that each is compiled by itself, after the others."""

    def __init__(
        self,
        runtime: CompilerRuntime,
        folder: Path,
        *,
        num_devices: int,
        start: Callable[[int], Child],
        request: Callable[[PointT], object],
        visit: Callable[[Any], Visit],
        alone: Sequence[PointT] = (),
    ) -> None:
        self._runtime, self._folder, self._num_devices = runtime, folder, num_devices
        self._start, self._request, self._visit, self._alone = start, request, visit, alone
        self._facts: dict[str, tuple[str, Any]] = {}  # what the compiler says of a binary, and what it is kept by
        memory_bytes = SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self._num_processes = max(1, min(cores, int(memory_bytes // PROCESS_BYTES)))
        self._all_memory_bytes = self._memory_bytes = int(memory_bytes)
        self._free: SimpleQueue[Child | None] = SimpleQueue()
        self._children: set[Child] = set()
        self._too_large: dict[object, tuple[int, str]] = {}
        self._is_closed = False

    def load(
        self, points: Sequence[PointT], earlier: Sequence[Round], stage: Callable[[str], None]
    ) -> Mapping[str, str]:
        """Compile every binary, small buckets first. Raises DeviceUnavailableError where the compiler does not start,
        as with a topology that it does not know."""
        ordered = sorted(points, key=lambda point: (point.length, point.name))
        stage(f"compiling {len(ordered)} binaries")
        alone = [point for point in ordered if point in self._alone]
        together = [point for point in ordered if point not in self._alone]
        failures, done = self._compile_all(together, self._num_processes, stage, f"of {len(ordered)}"), len(together)
        if alone:
            self._end()
            failures |= self._compile_all(alone, 1, stage, f"of {len(ordered)}", done)
        self.close()
        return failures

    def _compile_all(
        self, points: Sequence[PointT], num_processes: int, stage: Callable[[str], None], of: str, done: int = 0
    ) -> dict[str, str]:
        """Returns the reason of each that failed. done: points before these."""
        self._memory_bytes, self._free = self._all_memory_bytes // num_processes, SimpleQueue()
        for _ in range(num_processes):
            self._free.put(None)
        failures: dict[str, str] = {}
        with ThreadPoolExecutor(num_processes) as pool:
            futures = {pool.submit(self._compile, point): point for point in points}
            try:
                for number, future in enumerate(as_completed(futures), done + 1):
                    point = futures[future]
                    try:
                        future.result()
                    except DeviceUnavailableError:
                        raise
                    except Exception as error:  # noqa: BLE001 - this binary alone: its cases say so
                        failures[point.name] = failure_reason(point.name, error)
                    stage(f"compiled {number} {of}, {point.name.removeprefix('binary/')}")
            except BaseException:
                self.close()  # threads that wait for an answer hear that their process has ended
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return failures

    def warm_up(self, point: PointT) -> tuple[float, bool]:
        return 0.0, True

    def sample(self, point: PointT, round_index: int) -> Visit:
        key, facts = self._facts[point.name]
        forget(self._folder, key)  # the round that it goes into is about to be written
        return self._visit(facts)

    def close(self) -> None:
        """End the compilers."""
        self._is_closed = True
        self._end()

    def _end(self) -> None:
        for child in tuple(self._children):
            child.close()
        self._children.clear()

    def _compile(self, point: PointT) -> None:
        """Raises MeasurementError with the compiler's reason, UnitLostError where it was lost."""
        if point.step in self._too_large and self._too_large[point.step][0] < point.length:
            raise CompileRefusedError(f"not tried: {self._too_large[point.step][1]}")
        child = self._free.get()
        try:
            child = self._started() if child is None else child
            key, facts = child.call("facts", self._request(point), self._num_devices)
        except Exception as error:
            if is_out_of_memory(error):
                self._too_large.setdefault(point.step, (point.length, str(error)))
            raise
        finally:
            self._free.put(child if child is not None and child.is_open else None)
        self._facts[point.name] = key, facts
        name = point.name.removeprefix("binary/").replace("/", "-")
        record = CompileRecord(name=name, compile_s=facts.compile_cpu_s, cache=CacheState.COLD)
        self._runtime.compiles.append(record)

    def _started(self) -> Child:
        if self._is_closed:
            raise DeviceUnavailableError("the campaign has ended")
        child = self._start(self._memory_bytes)
        self._children.add(child)
        try:
            child.started()
        except ConfigError as error:
            raise DeviceUnavailableError(str(error)) from None
        return child
