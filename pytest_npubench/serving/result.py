"""What a serving run leaves behind: a record of every request that arrived, and the log of its iterations."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.member import BatchMember
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.serving.metrics.stored_times import StoredTimes, Times
from pytest_npubench.serving.settings import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingResult:
    """records: every request that arrived, in order of arrival, finished or not. clock: "wall" or "virtual".

    settings are the policy's, as they were in force; started_s and ended_s are on the run's clock.
    """

    records: tuple[RequestRecord, ...]
    log: IterationLog
    clock: str
    policy: str
    settings: Mapping[str, Setting]
    started_s: float
    ended_s: float
    num_layers: int


def records_of(members: Iterable[BatchMember], log: IterationLog) -> tuple[RequestRecord, ...]:
    """Returns the requests' times, read off the log of the device that served them."""
    start_s, end_s = log.start_s, memoryview(log.end_s[:])  # a copy: the log's own could not grow under a view
    ends_s = np.asarray(end_s)
    # in order up to a finite one they all are, and so are a request's
    is_ordered = bool((ends_s[1:] >= ends_s[:-1]).all()) and (not end_s or end_s[-1] < math.inf)
    return tuple(
        [record_of(member, start_s, StoredTimes(_taken(member.segments, end_s), is_ordered)) for member in members]
    )


def record_of(member: BatchMember, start_s: Sequence[float], token_times_s: Sequence[float]) -> RequestRecord:
    """Returns the request's times: start_s of the log of the device that prefilled it, and those of its tokens."""
    request = member.request
    return RequestRecord(
        request.arrival_s,
        token_times_s,
        request.id,
        request.prompt_tokens,
        request.output_tokens,
        member.dispatched_s,
        None if member.scheduled_at is None else start_s[member.scheduled_at],
        member.num_preemptions,
        tokens=tuple(member.tokens),
    )


def token_times(*parts: tuple[Sequence[tuple[int, int]], array[float]]) -> StoredTimes:
    """Returns the ends of the iterations that gave the tokens, of one device after the other: segments are (first
    iteration, number of tokens), and the log's end_s."""
    times_s = array("d")
    for segments, end_s in parts:
        times_s.extend(_taken(segments, end_s))
    return StoredTimes(times_s)


def _taken(segments: Sequence[tuple[int, int]], end_s: Times) -> Times:
    if len(segments) == 1:
        ((first, number),) = segments
        return end_s[first : first + number]
    times_s = array("d")
    for first, number in segments:
        times_s.extend(end_s[first : first + number])
    return times_s
