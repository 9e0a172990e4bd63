"""Fields of our files beyond plain values: times and check sums.

A check sum ties an entry to what stands in it and to the name it stands under: an altered digit or name that still is
JSON is then an error, not another baseline. It stands for each entry and not for the file, so that git can merge two
branches that added entries.

Worked example: check_sum(["a", 1.5]) is the first 8 hex digits of the SHA-256 of the text ["a",1.5].
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Any

from pytest_npubench.core.record_reader import WrongEntryError
from pytest_npubench.store.json_text import JsonError, canonical, join, take


def _checked_time(text: str) -> str:
    try:
        if datetime.fromisoformat(text).tzinfo is not None:
            return text
    except ValueError:
        pass
    raise WrongEntryError("", f"want a time like 2026-11-21T13:05:00+00:00, found {text!r}")


Time = Annotated[str, _checked_time]
"""ISO 8601 with its offset from UTC."""


def check_sum(value: object) -> str:
    """8 hex digits of a value in plain data."""
    return hashlib.sha256(canonical(value)).hexdigest()[:8]


def verify_sum(content: Any, place: str, value: object) -> None:
    """Raises JsonError where content["check"] is not the check sum of `value`."""
    found = take(content, "check", (str,), place)
    if found != check_sum(value):
        raise JsonError(
            f"{join(place, 'check')}: {found!r} is not the check sum of this entry: it was altered or damaged; "
            "take it from git again"
        )
