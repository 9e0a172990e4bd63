"""Why requests fail, in classes that can be counted and kept: a journal holds the class, no server's words.

Worked example: "HTTP 429 Too Many Requests: later" is of class "HTTP 429", and of 4 requests {"HTTP 429": 2} reads
"2 of 4: HTTP 429".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

OTHER = "failed"
CLASSES: Mapping[str, str] = {
    r"no connection": "no connection",
    r"disconnected": "disconnected",
    r"timed out": "timed out",
    r"malformed stream|an event (of more than|that is no)": "malformed stream",
    r"the server ended its answer": "ended by the server with an error",
    r"the answer stopped before its end": "stopped before its end",
    r"no stream of events": "no stream of events",
    r"(over )?\d+ tokens came, \d+ were asked for": "another number of tokens than asked for",
    r"(over )?\d+ tokens were counted": "no token streamed",
    r"the server counts": "token counts that contradict the stream",
    r"lost with": "lost with a process of the client",
}
"""How the client's reason begins -> its class; the first that fits counts."""


def class_of(reason: str | None) -> str | None:
    """Returns the class of a request's failure; None of None."""
    if reason is None:
        return None
    if status := re.match(r"HTTP \d{3}\b", reason):
        return status[0]
    return next((name for pattern, name in CLASSES.items() if re.match(pattern, reason)), OTHER)


def by_name(classes: Iterable[str | None]) -> dict[str, int]:
    """How many requests failed for each reason, the most common first; None is one that did not fail."""
    return dict(Counter(filter(None, classes)).most_common())


def in_words(failures: Mapping[str, int], num_arrived: int) -> str:
    """Empty where none failed."""
    return "; ".join(f"{number} of {num_arrived}: {name}" for name, number in failures.items())
