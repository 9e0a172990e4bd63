"""What a serving run leaves behind: a record of every request that arrived, and the log of its iterations."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.member import BatchMember
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.serving.metrics.stored_times import StoredTimes
from pytest_npubench.serving.settings import Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingResult:
    """records: every request that arrived, in order of arrival, finished or not. clock: "wall" or "virtual".

    settings are the policy's, as they were in force; started_s and ended_s are on the run's clock. num_found_tokens of
    the prompts were in the KV cache when they were first admitted.
    """

    records: tuple[RequestRecord, ...]
    log: IterationLog
    clock: str
    policy: str
    settings: Mapping[str, Setting]
    started_s: float
    ended_s: float
    num_layers: int
    num_found_tokens: int = 0


def record_of(member: BatchMember, log: IterationLog, token_times_s: Sequence[float] | None = None) -> RequestRecord:
    """The request's times, read off the log of the device that prefilled it; its token times too unless given."""
    request = member.request
    times_s = token_times((member.segments, log.end_s)) if token_times_s is None else token_times_s
    return RequestRecord(
        arrival_s=request.arrival_s,
        token_times_s=times_s,
        id=request.id,
        prompt_tokens=request.prompt_tokens,
        output_tokens=request.output_tokens,
        dispatched_s=member.dispatched_s,
        scheduled_s=None if member.scheduled_at is None else log.start_s[member.scheduled_at],
        num_preemptions=member.num_preemptions,
        tokens=tuple(member.tokens),
    )


def token_times(*parts: tuple[Sequence[tuple[int, int]], array[float]]) -> StoredTimes:
    """The ends of the iterations that gave the tokens, of one device after the other: segments are (first iteration,
    number of tokens), and the log's end_s."""
    found = array("d")
    for segments, end_s in parts:
        for first, number in segments:
            found += end_s[first : first + number]
    return StoredTimes(found)
