"""What one answer may take, in time, bytes and events: derived from what was asked for, so that no server decides it.

    time     connect_timeout_s + idle_timeout_s + 5 s a token, at most 600 s; or answer_timeout_s where that is given.
             It is for the whole request: retries, and the pauses before them, are part of it.
    bytes    512 KiB + 16 KiB a token: an event of one token is 0.3 KiB, with twenty log-probabilities 3 KiB
    event    256 KiB + 256 bytes a token: a proxy may merge a whole answer into one
    events   64 + 4 a token, of those that bring text or a new count: what is kept of an answer

Worked example: 16 tokens and the default times of an endpoint (10 and 60 s) have 150 s, 768 KiB, events of up to
260 KiB, and 128 of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.engines.http.endpoint import Endpoint

TOKEN_S, LONGEST_S = 5.0, 600.0
ANSWER_BYTES, TOKEN_BYTES = 2**19, 2**14
EVENT_BYTES, EVENT_TOKEN_BYTES = 2**18, 2**8
NUM_EVENTS, TOKEN_EVENTS = 64, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerLimits:
    """time_s from the first sending to the last byte, retries included; event_bytes of one event or line."""

    time_s: float
    num_bytes: int
    event_bytes: int
    num_events: int


def answer_limits(endpoint: Endpoint, output_tokens: int) -> AnswerLimits:
    derived_s = endpoint.connect_timeout_s + endpoint.idle_timeout_s + TOKEN_S * output_tokens
    return AnswerLimits(
        time_s=min(derived_s, LONGEST_S) if endpoint.answer_timeout_s is None else endpoint.answer_timeout_s,
        num_bytes=ANSWER_BYTES + TOKEN_BYTES * output_tokens,
        event_bytes=EVENT_BYTES + EVENT_TOKEN_BYTES * output_tokens,
        num_events=NUM_EVENTS + TOKEN_EVENTS * output_tokens,
    )
