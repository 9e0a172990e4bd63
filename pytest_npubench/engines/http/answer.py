"""What is asked of a server, and what came back. Seconds on one clock that starts with the run (time.monotonic)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNKNOWN_TEXT = "text under a key that is not known"
PASSED_OVER = "events without content passed over"
UNSTREAMED = "tokens counted and not streamed"
ENDED_EARLY = "tokens fewer than asked for, measured at its own length"
SENT_AGAIN = "sent again, as its connection was closed while idle"
UNENDED = "a last event without its blank line counted"
REPEATED = "each event repeats the text so far"
DOUBTS = ("running usage not believed", "token lists not believed", "usage not believed")
REMARKS = (UNKNOWN_TEXT, PASSED_OVER, UNSTREAMED, ENDED_EARLY, SENT_AGAIN, *DOUBTS, UNENDED, REPEATED)
"""How a remark on an answer begins; a colon and more may follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """prompt: token ids where the server takes them (completions API), else text. arrival_s: when it is due. history:
    what was said before, by user and model in turn. think_s: not None where it is due so long after the request before
    it in a load has ended; its answer has the time that came of it."""

    id: int
    arrival_s: float
    prompt: str | tuple[int, ...]
    output_tokens: int
    history: tuple[str, ...] = ()
    think_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """One request's answer, whole or not.

    dispatched_s: when the client began to send it, so dispatched_s - arrival_s is the client's own lag; None where the
    process that was to send it was lost. token_times_s: one a token that came, however it ended. counted_by says how
    tokens were counted (token_times). remarks: what a reader of the figures should know, each with a number of tokens,
    events or times. failed: the reason, None where the answer is whole.
    """

    request: HttpRequest
    dispatched_s: float | None
    token_times_s: tuple[float, ...] = ()
    counted_by: str = ""
    remarks: Mapping[str, int] = field(default_factory=dict)
    failed: str | None = None
