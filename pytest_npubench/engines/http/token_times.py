"""The time of every token, when pieces of an answer may hold several tokens or none.

A server under load, or a proxy, merges deltas: counting events would lose tokens. Tokens of one event came at one time,
so their TBT is 0 and the gap before them is long, which is what a reader of the stream sees.

Worked example: events at 1.0, 1.2 and 1.3 s with running counts 1, 4 and 5 give the times 1.0, 1.2, 1.2, 1.2, 1.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_npubench.engines.http.delta import Delta
from pytest_npubench.errors import MeasurementError

RUNNING, LISTED, SPREAD, EVENTS = "running usage", "token lists", "usage, spread by text length", "events with text"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTimes:
    """times_s, one a token, not decreasing, and what they were counted by: exact for running usage and token lists."""

    times_s: tuple[float, ...]
    counted_by: str


def token_times(deltas: Sequence[tuple[float, Delta]]) -> TokenTimes:
    """`deltas` with their seconds in order. Raises MeasurementError where the server's counts contradict its events."""
    with_text = [(at_s, delta) for at_s, delta in deltas if delta.num_chars]
    totals = [(at_s, delta.total_tokens) for at_s, delta in deltas if delta.total_tokens is not None]
    if len(totals) > 1 and totals[0][1] != totals[-1][1]:
        return TokenTimes(times_s=_running([(at_s, total or 0) for at_s, total in totals]), counted_by=RUNNING)
    if with_text and all(delta.num_tokens is not None for _, delta in with_text):
        counted = [(at_s, delta.num_tokens or 0) for at_s, delta in deltas]
        return TokenTimes(times_s=_repeated(counted), counted_by=LISTED)
    if totals:
        return TokenTimes(times_s=_spread(with_text, totals[-1][1] or 0), counted_by=SPREAD)
    return TokenTimes(times_s=tuple(at_s for at_s, _ in with_text), counted_by=EVENTS)


def _running(totals: Sequence[tuple[float, int]]) -> tuple[float, ...]:
    new, seen = [], 0
    for at_s, total in totals:
        if total < seen:
            raise MeasurementError(f"the server's running count of tokens falls from {seen} to {total}")
        new.append((at_s, total - seen))
        seen = total
    return _repeated(new)


def _spread(with_text: Sequence[tuple[float, Delta]], total: int) -> tuple[float, ...]:
    """Tokens in proportion to the text of each event, and at least one an event."""
    if total < len(with_text) or (total and not with_text):
        raise MeasurementError(f"the server counts {total} tokens and sent text in {len(with_text)} events")
    num_chars = sum(delta.num_chars for _, delta in with_text)
    shares = [total * delta.num_chars / num_chars for _, delta in with_text]
    counts = [max(1, int(share)) for share in shares]
    while sum(counts) < total:
        counts[max(range(len(counts)), key=lambda index: shares[index] - counts[index])] += 1
    while sum(counts) > total:
        several = [index for index, count in enumerate(counts) if count > 1]
        counts[max(several, key=lambda index: counts[index] - shares[index])] -= 1
    return _repeated([(at_s, count) for (at_s, _), count in zip(with_text, counts, strict=True)])


def _repeated(counted: Sequence[tuple[float, int]]) -> tuple[float, ...]:
    return tuple(at_s for at_s, number in counted for _ in range(number))
