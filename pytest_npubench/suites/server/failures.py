"""Why requests fail, in classes that can be counted and kept: a journal holds a number a request, no server's words.

A code of 100 or more is the HTTP status that refused the request; 0 is a whole answer; those below 100 stand in NAMES.

Worked example: codes (0, 429, 429, 2) read "2 of 4: HTTP 429; 1 of 4: disconnected".
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
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
    OTHER: "failed",
}
HIDDEN = "***"
WINDOW = 8
MAX_CHARS = 300


def code_of(reason: str | None) -> int:
    """The class of a request's failure; 0 for None."""
    if reason is None:
        return 0
    if status := re.match(r"HTTP (\d{3})\b", reason):
        return int(status[1])
    return next((code for pattern, code in PATTERNS if re.match(pattern, reason)), OTHER)


def name_of(code: int) -> str:
    return f"HTTP {code}" if code >= 100 else NAMES.get(code, NAMES[OTHER])


def by_name(codes: Sequence[int]) -> dict[str, int]:
    """How many requests failed for each reason, the most common first."""
    counts = Counter(name_of(code) for code in codes if code)
    return dict(counts.most_common())


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
