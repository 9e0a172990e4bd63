"""The time of every token, when pieces of an answer may hold several tokens or none.

A server under load, or a proxy, merges deltas: counting events would lose tokens. Tokens of one event came at one time,
so their TBT is 0 and the gap before them is long, which is what a reader of the stream sees.

A count is what a server says, and may be any number: it is kept as a number, and no more times are written out than
tokens were asked for.

Worked example: events at 1.0, 1.2 and 1.3 s with running counts 1, 4 and 5 give the times 1.0, 1.2, 1.2, 1.2, 1.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice, repeat

from pytest_npubench.engines.http.delta import Delta
from pytest_npubench.errors import MeasurementError

RUNNING, LISTED, SPREAD, EVENTS = "running usage", "token lists", "usage, spread by text length", "events with text"
Counted = Sequence[tuple[float, int]]
"""Seconds, and how many tokens came then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTimes:
    """num_tokens that came; times_s of the first of them, as many as were asked for at most, not decreasing; and what
    they were counted by: exact for running usage and token lists."""

    num_tokens: int
    times_s: tuple[float, ...]
    counted_by: str


def token_times(deltas: Sequence[tuple[float, Delta]], asked: int) -> TokenTimes:
    """`deltas` with their seconds in order, of an answer that was to have so many tokens. Raises MeasurementError where
    the server's counts contradict its events."""
    counted, counted_by = _counted(deltas)
    num_tokens = sum(number for _, number in counted)
    # repeat takes no number above the machine's word
    times = chain.from_iterable(repeat(at_s, min(number, asked)) for at_s, number in counted)
    return TokenTimes(num_tokens=num_tokens, times_s=tuple(islice(times, asked)), counted_by=counted_by)


def _counted(deltas: Sequence[tuple[float, Delta]]) -> tuple[Counted, str]:
    with_text = [(at_s, delta) for at_s, delta in deltas if delta.num_chars]
    totals = [(at_s, delta.total_tokens) for at_s, delta in deltas if delta.total_tokens is not None]
    if len(totals) > 1 and totals[0][1] != totals[-1][1]:
        return _running(totals), RUNNING
    if with_text and all(delta.num_tokens is not None for _, delta in with_text):
        return [(at_s, delta.num_tokens or 0) for at_s, delta in deltas], LISTED
    if totals:
        return _spread(with_text, totals[-1][1]), SPREAD
    return [(at_s, 1) for at_s, _ in with_text], EVENTS


def _running(totals: Counted) -> Counted:
    new, seen = [], 0
    for at_s, total in totals:
        if total < seen:
            raise MeasurementError(f"the server's running count of tokens falls from {in_digits(seen)} to {total}")
        new.append((at_s, total - seen))
        seen = total
    return new


def _spread(with_text: Sequence[tuple[float, Delta]], total: int) -> Counted:
    """Tokens in proportion to the text of each event, and at least one an event: whole parts first, the rest to the
    events that were cut most, and what single tokens took too much back from those that were cut least."""
    if total < len(with_text) or (total and not with_text):
        raise MeasurementError(f"the server counts {in_digits(total)} tokens and sent text in {len(with_text)} events")
    num_chars = sum(delta.num_chars for _, delta in with_text)
    # a share is parts / num_chars tokens; whole numbers, so that no count is too large for it
    parts = [total * delta.num_chars for _, delta in with_text]
    counts = [max(1, part // num_chars) for part in parts]
    cut = [part - count * num_chars for part, count in zip(parts, counts, strict=True)]
    missing = total - sum(counts)
    if missing > 0:  # fewer than there are events with a part cut off
        for index in sorted(range(len(counts)), key=lambda index: -cut[index])[:missing]:
            counts[index] += 1
    several = [(cut[index], index) for index, count in enumerate(counts) if count > 1]
    heapify(several)
    for _ in range(-missing):
        least, index = several[0]
        counts[index] -= 1
        if counts[index] > 1:
            heapreplace(several, (least + num_chars, index))
        else:
            heappop(several)
    return [(at_s, count) for (at_s, _), count in zip(with_text, counts, strict=True)]


def in_digits(number: int) -> str:
    """A number's digits, up to 13: a larger count is of no interest, and may have thousands."""
    return str(number) if number < 10**12 else "over 1000000000000"
