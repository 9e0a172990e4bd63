"""The time of every token, when pieces of an answer may hold several tokens or none.

A server under load, or a proxy, merges deltas: counting events would lose tokens. Tokens of one event came at one time,
so their TBT is 0 and the gap before them is long, which is what a reader of the stream sees.

A count is what a server says, and may be any number: it is kept as a number, and no more times are written out than
tokens were asked for. It is believed where it agrees with the stream, and says why not where it does not:

    a running count    rises with every event that has text, by CHAR_TOKENS a character at most; rises behind the last
                       text by one alone, in the event that finishes the answer (the sign that ends it has no text)
    lists of tokens    stand beside every text, and are as many as the whole count, where there is one
    a whole count      is none of 0 beside text

Of the whole count, tokens that the server calls reasoning and streams no text of have no time: they are kept apart. So
are those that a running count holds ahead of the first text, where they are more than a sign cut into its bytes.

Worked example: events at 1.0, 1.2 and 1.3 s with running counts 1, 4 and 5 give the times 1.0, 1.2, 1.2, 1.2, 1.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import chain, islice, repeat, takewhile

from pytest_npubench.engines.http.delta import Delta
from pytest_npubench.errors import MeasurementError

RUNNING, LISTED, SPREAD, EVENTS = "running usage", "token lists", "usage, spread by text length", "events with text"
CHAR_TOKENS = 4  # of a byte each, in UTF-8
Counted = Sequence[tuple[float, int]]
"""Seconds, and how many tokens came then."""
Deltas = Sequence[tuple[float, Delta]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTimes:
    """num_tokens that came; times_s of the first of them, as many as were asked for at most, not decreasing; and what
    they were counted by: exact for running usage and token lists, nothing where none came. num_unstreamed: more tokens
    that the server counts and streamed no text of. doubt: why a better count that the server gave is not believed."""

    num_tokens: int
    times_s: tuple[float, ...]
    counted_by: str
    num_unstreamed: int = 0
    doubt: str = ""


def token_times(deltas: Deltas, asked: int) -> TokenTimes:
    """`deltas` with their seconds in order, of an answer that was to have so many tokens. Raises MeasurementError where
    the server's counts contradict its events."""
    with_text = [(at_s, delta) for at_s, delta in deltas if delta.num_chars]
    totals = [delta.total_tokens for _, delta in deltas if delta.total_tokens is not None]
    total = totals[-1] if totals else None
    unstreamed = _num_unstreamed(with_text, max((delta.unstreamed_tokens for _, delta in deltas), default=0), total)
    ahead = _num_ahead(deltas)
    behind = [(at_s, _less(delta, ahead)) for at_s, delta in deltas] if ahead and with_text else []
    if behind and not _why_not_running(behind):
        counted, counted_by, doubt, unstreamed = _running(behind), RUNNING, "", ahead
    else:
        counted, counted_by, doubt = _counted(deltas, with_text, totals, unstreamed)
    # repeat takes no number above the machine's word
    times = chain.from_iterable(repeat(at_s, min(number, asked)) for at_s, number in counted)
    return TokenTimes(
        num_tokens=sum(number for _, number in counted),
        times_s=tuple(islice(times, asked)),
        counted_by=counted_by if counted else "",
        num_unstreamed=unstreamed,
        doubt=doubt,
    )


def _num_unstreamed(with_text: Deltas, said: int, total: int | None) -> int:
    """How many tokens of the whole count have no text. What is streamed under any name is not among them, and what the
    server counts beside the total is no part of it."""
    has_reasoning = any(delta.has_reasoning for _, delta in with_text)
    return 0 if total is None or has_reasoning or total - said < len(with_text) else said


def _num_ahead(deltas: Deltas) -> int:
    """How many tokens were counted before any text; 0 where they may be the bytes of its first sign."""
    silent = takewhile(lambda delta: not delta.num_chars, (delta for _, delta in deltas))
    number = max((delta.total_tokens or 0 for delta in silent), default=0)
    return number if number >= CHAR_TOKENS else 0


def _less(delta: Delta, number: int) -> Delta:
    return delta if delta.total_tokens is None else delta._replace(total_tokens=max(0, delta.total_tokens - number))


def _counted(deltas: Deltas, with_text: Deltas, totals: Sequence[int], unstreamed: int) -> tuple[Counted, str, str]:
    """The tokens of each event, what they are counted by, and why not by something better."""
    doubt = ""
    if len(set(totals)) > 1:
        doubt = "it counts tokens without text" if unstreamed else _why_not_running(deltas)
        if not doubt:
            return _running(deltas), RUNNING, ""
        doubt = f"running usage not believed: {doubt}"
    streamed = totals[-1] - unstreamed if totals else None
    if with_text and all(delta.num_tokens is not None for _, delta in with_text):
        listed = [(at_s, delta.num_tokens or 0) for at_s, delta in deltas]
        if streamed is None or streamed == sum(number for _, number in listed):
            return listed, LISTED, doubt
        doubt = doubt or "token lists not believed: they are not as many as the usage says"
    if streamed == 0 and with_text:
        streamed, doubt = None, doubt or "usage not believed: it counts no token"
    if streamed is not None:
        return _spread(with_text, streamed), SPREAD, doubt
    return [(at_s, 1) for at_s, _ in with_text], EVENTS, doubt


def _why_not_running(deltas: Deltas) -> str:
    """Empty where the counts of all events agree with their text."""
    counted = at_last_text = 0
    for _, delta in deltas:
        if delta.total_tokens is None:
            if delta.num_chars:
                return "an event with text has none"
            continue
        if delta.total_tokens < counted:
            return "it falls"
        if delta.num_chars and delta.total_tokens == counted:
            return "it does not rise with an event that has text"
        if delta.num_chars and delta.total_tokens - at_last_text > CHAR_TOKENS * delta.num_chars:
            return "it rises by more than the text allows"
        counted = delta.total_tokens
        at_last_text = counted if delta.num_chars else at_last_text
    behind = [delta for _, delta in deltas if (delta.total_tokens or 0) > at_last_text]
    is_end = len(behind) == 1 and behind[0].finish_reason
    return "it rises after the text" if counted - at_last_text > (1 if is_end else 0) else ""


def _running(deltas: Deltas) -> Counted:
    new, counted = [], 0
    for at_s, delta in deltas:
        if delta.total_tokens is not None:
            new.append((at_s, delta.total_tokens - counted))
            counted = delta.total_tokens
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
