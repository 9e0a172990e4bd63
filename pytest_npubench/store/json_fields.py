"""Fields of our files beyond one value: lists of one kind, objects with no other name, times, and check sums.

A check sum ties an entry to what stands in it and to the name it stands under: an altered digit or name that still is
JSON is then an error, not another baseline. It stands for each entry and not for the file, so that git can merge two
branches that added entries.

Worked example: check_sum(["a", 1.5]) is the first 8 hex digits of the SHA-256 of the text ["a",1.5].
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pytest_npubench.store.json_text import JsonError, canonical, join, take


def items(content: Any, name: str, kinds: tuple[type, ...], place: str) -> list[Any]:
    """content[name], a list whose items are each of one of the kinds. Raises JsonError naming the place."""
    found = take(content, name, (list,), place)
    return [take({f"{name}[{index}]": item}, f"{name}[{index}]", kinds, place) for index, item in enumerate(found)]


def only(content: Any, place: str, *names: str) -> None:
    """Raises JsonError where `content` is no object or has a name besides these: a rewrite would lose it."""
    if not isinstance(content, Mapping):
        raise JsonError(f"{place or 'value'}: want an object")
    if unknown := content.keys() - set(names):
        raise JsonError(f"{join(place, min(unknown))}: unknown; allowed are {', '.join(names)}")


def checked_time(text: str, place: str) -> str:
    """`text` if it is a time with an offset from UTC. Raises JsonError naming the place."""
    try:
        if datetime.fromisoformat(text).tzinfo is not None:
            return text
    except ValueError:
        pass
    raise JsonError(f"{place}: want a time like 2026-11-21T13:05:00+00:00, found {text!r}")


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
