"""The best set of at most K buckets for a workload, of all sets of candidates (LENS, arXiv 2606.18042, section 5.4.2).

What a set costs is a sum over lengths: prompts and decode steps that lie between two neighbours b' < b of the set run
in b, so with P and D their numbers there, and X the caches that outgrow b',

    seconds(S) = sum over neighbours (b', b) of S:  P(b', b] TTFT_b + D(b', b] TBT_b + X(b') move_b

A dynamic programme from the largest candidate down keeps, for the bucket chosen last, the partial sets that no other
beats in seconds, number of buckets, compile time and memory at once. It is exact for any latencies, so also where a
larger bucket is the faster one. choice="fastest": the engine runs a prompt or a step in the bucket of the set that
takes least time among those that hold it, not in the smallest; moves of the cache are not counted then.

Worked number: candidates 128, 256 and 512 of TTFT 10, 30 and 20 ms, one prompt of 100 and one of 200 tokens, one token
each. {128, 512} takes 10 + 20 = 30 ms, all three 10 + 30 = 40 ms under the smallest fit, 30 ms under the fastest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from pytest_npubench.core.buckets import Spans, check_fits, check_lengths
from pytest_npubench.errors import ConfigError, InfeasibleError, LengthError
from pytest_npubench.predictors.profile import BucketProfile
from pytest_npubench.predictors.work import (
    Finished,
    FloatArray,
    batch_prefills,
    longest_kv_tokens,
    padded_steps,
)

Choice = Literal["smallest", "fastest"]
Batch = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What batches ask of candidates, arrays of shape (len(edges),): the prompts and the decode steps whose length lies
    in (edges[j-1], edges[j]], and the caches that begin at or below edges[j] and outgrow it."""

    edges: tuple[int, ...]
    prefills: FloatArray
    steps: FloatArray
    crossings: FloatArray

    @classmethod
    def of(cls, profile: BucketProfile, batches: Sequence[Batch], finished: Finished = "grow") -> Demand:
        """Of batches of (input_tokens, output_tokens), padded as in Eq. 7 to 10.

        Raises LengthError for what the largest candidate does not hold, ConfigError where a candidate lacks a time, and
        for a batch that is empty or larger than the profile's batch size.
        """
        edges = tuple(profile.buckets)
        if profile.prefill_buckets != edges or profile.decode_buckets != edges:
            raise ConfigError("a bucket has no ttft_s or no tbt_s; want both in every bucket that is searched")
        spans, upper = Spans(edges=edges, buckets=edges), np.asarray(edges)
        prefills, steps, crossings = np.zeros((3, len(edges)))
        for batch in batches:
            if not 1 <= len(batch) <= profile.batch_size:
                raise ConfigError(f"a batch of {len(batch)} requests; the profile is of 1 to {profile.batch_size}")
            inputs = check_lengths("input_tokens", [pair[0] for pair in batch])
            num_steps = check_lengths("output_tokens", [pair[1] for pair in batch]) - 1
            check_fits("input_tokens", inputs, edges)
            prefills += list(batch_prefills(inputs, spans, profile.prefill_shared).values())
            steps += list(padded_steps(inputs, num_steps, spans, finished).values())
            first = inputs.max() if profile.prefill_shared else inputs.min()
            last = max(inputs.max(), longest_kv_tokens(inputs, num_steps, finished))
            crossings += (first <= upper) & (upper < last)
        return cls(edges=edges, prefills=prefills, steps=steps, crossings=crossings)

    @property
    def longest(self) -> int:
        """The smallest candidate that holds every length."""
        touched = np.flatnonzero(self.prefills + self.steps)
        if not len(touched):
            raise LengthError("no request asks for any bucket; want at least one")
        return self.edges[int(touched[-1])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a set may have; None is no limit. compile_s and memory_bytes are by bucket and add up over a set."""

    max_buckets: int | None = None
    max_compile_s: float | None = None
    max_memory_bytes: float | None = None
    compile_s: Mapping[int, float] = field(default_factory=dict)
    memory_bytes: Mapping[int, float] = field(default_factory=dict)

    def check(self, edges: Sequence[int]) -> None:
        """Raises ConfigError for no bucket at all, and for a limit on what a candidate does not tell."""
        if self.max_buckets is not None and self.max_buckets < 1:
            raise ConfigError(f"max_buckets is {self.max_buckets}; want at least 1")
        for name, limit, costs in (
            ("compile time", self.max_compile_s, self.compile_s),
            ("memory", self.max_memory_bytes, self.memory_bytes),
        ):
            if limit is not None and (missing := [bucket for bucket in edges if bucket not in costs]):
                raise ConfigError(f"the {name} of bucket {missing[0]} is not known; a limit wants that of every bucket")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketSet:
    """Buckets, ascending, and the predicted seconds of all batches; 0 of what is not known of a bucket."""

    buckets: tuple[int, ...]
    seconds: float
    compile_s: float = 0.0
    memory_bytes: float = 0.0

    def as_good_as(self, other: BucketSet) -> bool:
        """In everything that counts."""
        return (
            self.seconds <= other.seconds
            and len(self.buckets) <= len(other.buckets)
            and self.compile_s <= other.compile_s
            and self.memory_bytes <= other.memory_bytes
        )


def best_sets(
    demand: Demand, profile: BucketProfile, limits: Limits, choice: Choice = "smallest"
) -> tuple[BucketSet, ...]:
    """The best set of each number of buckets that is better than all smaller ones, ascending; the last is the best.

    Raises InfeasibleError naming the limit that no set keeps, ConfigError for limits that cannot be.
    """
    limits.check(demand.edges)
    _check_feasible(demand, limits)
    best: dict[int, BucketSet] = {}
    for bucket_set in _unbeaten(demand, profile, limits, choice):
        size = len(bucket_set.buckets)
        if size not in best or bucket_set.seconds < best[size].seconds:
            best[size] = bucket_set
    kept: list[BucketSet] = []
    for _, chosen in sorted(best.items()):
        if not kept or chosen.seconds < kept[-1].seconds:
            kept.append(chosen)
    return tuple(kept)


def set_seconds(demand: Demand, profile: BucketProfile, buckets: Sequence[int], choice: Choice = "smallest") -> float:
    """Predicted seconds of all batches with these buckets. Raises LengthError where they do not hold a length."""
    if not buckets or max(buckets) < demand.longest:
        raise LengthError(f"buckets {tuple(buckets)} do not hold what bucket {demand.longest} holds")
    chosen = BucketSet(buckets=(), seconds=0.0)
    state: _State = None
    for index in reversed(range(len(demand.edges))):
        if demand.edges[index] in buckets:
            chosen, state = _including(index, chosen, state, demand, profile, Limits(), choice)
        chosen = _served(index, chosen, state, demand, profile)
    return chosen.seconds


_State = tuple[int, int] | None
"""The places of the candidates in which a prompt and a step run from here down; None while none is chosen."""


def _unbeaten(demand: Demand, profile: BucketProfile, limits: Limits, choice: Choice) -> Iterator[BucketSet]:
    states: dict[_State, list[BucketSet]] = {None: [BucketSet(buckets=(), seconds=0.0)]}
    for index in reversed(range(len(demand.edges))):
        asked = demand.prefills[index] or demand.steps[index]
        reached: dict[_State, list[BucketSet]] = {}
        for state, partial in states.items():
            for chosen in partial:
                larger, its_state = _including(index, chosen, state, demand, profile, limits, choice)
                if _within(larger, limits):
                    _keep(reached.setdefault(its_state, []), _served(index, larger, its_state, demand, profile))
                if state is not None or not asked:
                    _keep(reached.setdefault(state, []), _served(index, chosen, state, demand, profile))
        states = reached
    for state, partial in states.items():
        if state is not None:
            yield from partial


def _including(
    index: int,
    chosen: BucketSet,
    state: _State,
    demand: Demand,
    profile: BucketProfile,
    limits: Limits,
    choice: Choice,
) -> tuple[BucketSet, tuple[int, int]]:
    """The set with one candidate more, and where prompts and steps run from there down."""
    bucket = demand.edges[index]
    moved_s, prefill, decode = 0.0, index, index
    if state is not None and choice == "fastest":
        prefill = min(index, state[0], key=lambda at: profile.buckets[demand.edges[at]].ttft_s or 0.0)
        decode = min(index, state[1], key=lambda at: profile.buckets[demand.edges[at]].tbt_s or 0.0)
    elif state is not None and profile.transitions_s:
        moved_s = float(demand.crossings[index]) * profile.transitions_s[demand.edges[state[0]]]
    larger = BucketSet(
        buckets=(bucket, *chosen.buckets),
        seconds=chosen.seconds + moved_s,
        compile_s=chosen.compile_s + limits.compile_s.get(bucket, 0.0),
        memory_bytes=chosen.memory_bytes + limits.memory_bytes.get(bucket, 0.0),
    )
    return larger, (prefill, decode)


def _served(index: int, chosen: BucketSet, state: _State, demand: Demand, profile: BucketProfile) -> BucketSet:
    """With what the lengths of one candidate take in the buckets that the state names."""
    if state is None:
        return chosen
    ttft_s, tbt_s = (
        profile.buckets[demand.edges[state[0]]].ttft_s or 0.0,
        profile.buckets[demand.edges[state[1]]].tbt_s or 0.0,
    )
    seconds = chosen.seconds + float(demand.prefills[index] * ttft_s + demand.steps[index] * tbt_s)
    return BucketSet(
        buckets=chosen.buckets,
        seconds=seconds,
        compile_s=chosen.compile_s,
        memory_bytes=chosen.memory_bytes,
    )


def _keep(kept: list[BucketSet], new: BucketSet) -> None:
    """Those that no other beats."""
    if not any(one.as_good_as(new) for one in kept):
        kept[:] = [one for one in kept if not new.as_good_as(one)] + [new]


def _within(chosen: BucketSet, limits: Limits) -> bool:
    return (
        (limits.max_buckets is None or len(chosen.buckets) <= limits.max_buckets)
        and (limits.max_compile_s is None or chosen.compile_s <= limits.max_compile_s)
        and (limits.max_memory_bytes is None or chosen.memory_bytes <= limits.max_memory_bytes)
    )


def _check_feasible(demand: Demand, limits: Limits) -> None:
    """A set costs at least what its largest bucket alone costs, so one bucket decides."""
    alone = [bucket for bucket in demand.edges if bucket >= demand.longest]
    costs_of = (
        ("compile time", "s", limits.max_compile_s, limits.compile_s),
        ("memory", "bytes", limits.max_memory_bytes, limits.memory_bytes),
    )
    for name, unit, limit, costs in costs_of:
        if limit is not None and (least := min(costs[bucket] for bucket in alone)) > limit:
            raise InfeasibleError(
                f"no set of buckets keeps the {name}: one that holds bucket {demand.longest}'s lengths takes at least"
                f" {least:g} {unit}, the limit is {limit:g} {unit}"
            )
    bounded = [(limit, costs) for _, _, limit, costs in costs_of if limit is not None]
    if not any(all(costs[bucket] <= limit for limit, costs in bounded) for bucket in alone):
        raise InfeasibleError(
            f"no set of buckets keeps compile time and memory together: each bucket from {demand.longest} up passes one"
        )
