"""What was measured on one pair of units: the solver's only input.

Times of parts are a unit's own, alone, without copy and signals; those are records of their own, as is how much slower
a unit becomes while the other works too. Samples are kept, so that an unfinished profile can be gone on with.

Worked number: slowdown.gpu = (1.2, 1.3, 1.25) is 1.25: 400 us alone are 500 us beside the NPU.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.options import SplitOptions

PartKey = tuple[str, int, int, int, bool]  # unit, rows, cols, tokens, whether the weight was cold
Samples = Annotated[tuple[float, ...], Meta(min_length=1, description="a list of numbers that is not empty")]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLatency:
    """A unit alone on weight [rows, cols]; `tokens` are the prompt's on the GPU and the graph's on the NPU. is_cold:
    the weight came from memory, as in decode."""

    unit: str
    rows: int
    cols: int
    tokens: int
    samples_s: Samples
    is_cold: bool = False

    @property
    def key(self) -> PartKey:
        return self.unit, self.rows, self.cols, self.tokens, self.is_cold

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyLatency:
    """Bringing a result of num_bytes from the static unit into shared memory."""

    num_bytes: int
    samples_s: Samples

    @property
    def median_s(self) -> float:
        return statistics.median(self.samples_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphTime:
    """Making one graph, once."""

    rows: int
    cols: int
    tokens: int
    compile_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Slowdown:
    """Each unit's time beside the other over its time alone, for a split of weight [rows, cols] x tokens. Company makes
    no unit faster, so a median below 1 is noise and counts as 1."""

    rows: int
    cols: int
    tokens: int
    gpu: Samples
    npu: Samples

    @property
    def key(self) -> tuple[int, int, int]:
        return self.rows, self.cols, self.tokens

    @property
    def gpu_factor(self) -> float:
        return max(1.0, statistics.median(self.gpu))

    @property
    def npu_factor(self) -> float:
        return max(1.0, statistics.median(self.npu))


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncLatency:
    """Having work done by the static unit, beyond that work: hand it over, hear of its end, by one mechanism."""

    mechanism: str
    p50_s: float
    p99_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProfile:
    """Everything measured. fingerprint: facts of machine, software and units by name. syncs: the fastest mechanism
    first. *_sync_inside: the NPU's signal hides behind the GPU's work (inside the maximum), which HeteroInfer has in
    decode; copy_inside: so does its copy. gpu_threshold_tokens: up to so many tokens the GPU takes as long as for one
    (GPU-1); None where there is no such threshold. Raises PartitionError where a time is not finite and above 0,
    and where a point stands twice."""

    fingerprint: tuple[tuple[str, str], ...]
    options: SplitOptions
    latencies: tuple[PartLatency, ...]
    copies: tuple[CopyLatency, ...] = ()
    graphs: tuple[GraphTime, ...] = ()
    slowdowns: tuple[Slowdown, ...] = ()
    syncs: tuple[SyncLatency, ...]
    decode_sync_inside: bool = False
    prefill_sync_inside: bool = False
    copy_inside: bool = False
    gpu_threshold_tokens: float | None = None
    is_finished: bool = True

    def __post_init__(self) -> None:
        keys = [latency.key for latency in self.latencies]
        if doubled := [key for key in keys if keys.count(key) > 1] if len(set(keys)) < len(keys) else []:
            raise PartitionError(f"a profile with two latencies of {doubled[0]}; want one")
        for name, value in self._times():
            if not (math.isfinite(value) and value >= 0):
                raise PartitionError(f"a profile with {name} of {value!r}; want a finite number of seconds >= 0")
        for slowdown in self.slowdowns:
            if not all(math.isfinite(factor) and factor > 0 for factor in (*slowdown.gpu, *slowdown.npu)):
                raise PartitionError(f"a profile with a slowdown of {slowdown.key} that is not above 0")
        if not self.syncs:
            raise PartitionError("a profile without a synchronisation mechanism; want one or more")

    def _times(self) -> list[tuple[str, float]]:
        times = [(f"a latency of {item.key}", value) for item in self.latencies for value in item.samples_s]
        times += [(f"a copy of {item.num_bytes} bytes", value) for item in self.copies for value in item.samples_s]
        times += [(f"a graph of {item.rows}x{item.cols}x{item.tokens}", item.compile_s) for item in self.graphs]
        times += [(f"sync by {item.mechanism}", value) for item in self.syncs for value in (item.p50_s, item.p99_s)]
        return times

    def sync(self, mechanism: str | None = None) -> SyncLatency:
        """Returns a mechanism's latency; None: the fastest. Raises PartitionError with the measured mechanisms."""
        for sync in self.syncs:
            if mechanism in (None, sync.mechanism):
                return sync
        measured = ", ".join(sync.mechanism for sync in self.syncs)
        raise PartitionError(f"the profile has no synchronisation by {mechanism!r}; measured: {measured}")

    def sync_inside(self, tokens: int) -> bool:
        return self.decode_sync_inside if tokens == 1 else self.prefill_sync_inside

    def check_fingerprint(self, facts: Mapping[str, str]) -> None:
        """Raises PartitionError with what differs, among the facts given, from where this was measured."""
        mine = dict(self.fingerprint)
        changed = {name: value for name, value in facts.items() if mine.get(name) != value}
        if changed:
            differing = [f"{name} {mine.get(name, 'unknown')} -> {value}" for name, value in changed.items()]
            raise PartitionError(f"the profile was measured elsewhere: {'; '.join(differing)}")
