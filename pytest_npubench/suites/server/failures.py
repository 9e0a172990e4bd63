"""Why requests fail, in classes that can be counted and kept: a journal holds the class, no server's words.

Journals of before held a code for each request: one of 100 or more is the HTTP status that refused it, 0 is a whole
answer, and those below 100 stand in NAMES.

Worked example: "HTTP 429 Too Many Requests: later" is of class "HTTP 429", and of 4 requests {"HTTP 429": 2} reads
"2 of 4: HTTP 429".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

OTHER = 99
# how the client's reason begins or what it holds -> code, in the order in which they are looked for
PATTERNS: Sequence[tuple[str, int]] = (
    (r"answered after \d+ retries", 8),
    (r"no connection", 1),
    (r"disconnected", 2),
    (r"timed out", 3),
    (r"malformed stream|an event (of more than|that is no)", 4),
    (r"the server ended its answer", 5),
    (r"the answer stopped before its end", 6),
    (r"(over )?\d+ tokens came, \d+ were asked for", 7),
    (r"the server('s running count| counts)", 9),
    (r"lost with", 10),
)
NAMES: Mapping[int, str] = {
    1: "no connection",
    2: "disconnected",
    3: "timed out",
    4: "malformed stream",
    5: "ended by the server with an error",
    6: "stopped before its end",
    7: "another number of tokens than asked for",
    8: "answered after retries",
    9: "token counts that contradict the stream",
    10: "lost with a process of the client",
    OTHER: "failed",
}
HIDDEN = "***"
WINDOW = 8
MAX_CHARS = 300


def class_of(reason: str | None) -> str | None:
    """The class of a request's failure; None of None."""
    if reason is None:
        return None
    if status := re.match(r"HTTP \d{3}\b", reason):
        return status[0]
    return name_of(next((code for pattern, code in PATTERNS if re.match(pattern, reason)), OTHER))


def name_of(code: int) -> str:
    return f"HTTP {code}" if code >= 100 else NAMES.get(code, NAMES[OTHER])


def by_name(classes: Iterable[str | None]) -> dict[str, int]:
    """How many requests failed for each reason, the most common first; None is one that did not fail."""
    return dict(Counter(filter(None, classes)).most_common())


def in_words(failures: Mapping[str, int], num_arrived: int) -> str:
    """Empty where none failed."""
    return "; ".join(f"{number} of {num_arrived}: {name}" for name, number in failures.items())


def without_key(text: str, key: str) -> str:
    """`text` for a record: without the API key, which a server may send back, cut short or whole.

    Every stretch of 8 signs or more that the key holds too is hidden, a shorter key as a whole.
    """
    text = text[:MAX_CHARS]
    width = min(WINDOW, len(key))
    if not width:
        return text
    pieces = {key[start : start + width] for start in range(len(key) - width + 1)}
    hidden = [False] * len(text)
    for start in range(len(text) - width + 1):
        if text[start : start + width] in pieces:
            hidden[start : start + width] = [True] * width
    runs = groupby(zip(text, hidden, strict=True), key=itemgetter(1))
    return "".join(HIDDEN if is_hidden else "".join(sign for sign, _ in signs) for is_hidden, signs in runs)
