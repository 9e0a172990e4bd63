"""What a compiled module's text says about copies."""

from __future__ import annotations

import math
import re

_COPY = re.compile(r"= \(?\w+\[([\d,]+)\]\S*(?: \S+)*? (?:copy|transpose)\(")


def copies(text: str, *, num_elements: int) -> list[str]:
    """The instructions that copy, or lay out anew, an array of this many elements, inside fusions too.

    A TPU's copy-start is none of them: it fetches into on-chip memory what is about to be read.
    """
    found = []
    for line in text.splitlines():
        match = _COPY.search(line)
        if match and math.prod(map(int, match[1].split(","))) == num_elements:
            found.append(line.strip())
    return found
