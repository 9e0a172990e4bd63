"""JSON as the store writes and reads it: finite numbers, string names, no name twice; complaints name the place.

Worked example: plain({"points": {"b128": float("nan")}}) raises
JsonError("points.b128: nan is not a finite number").
A name twice is refused because a merge that went wrong leaves one, and json.loads would keep the last silently.

Fields of our files beyond plain values: times and check sums.

A check sum ties an entry to what stands in it and to the name it stands under: an altered digit or name that still is
JSON is then an error, not another baseline. It stands for each entry and not for the file, so that git can merge two
branches that added entries.

Worked example: check_sum(["a", 1.5]) is the first 8 hex digits of the SHA-256 of the text ["a",1.5].
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from pytest_npubench.core.documents import json_value
from pytest_npubench.core.record_reader import KINDS, WrongEntryError, kind_of


class JsonError(ValueError):
    """Something that is not our JSON. Callers turn it into a StoreError that names the file.

    line and column count from 1 and are None where the text as a whole is meant.
    """

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


def plain(value: object, key: str = "") -> Any:
    """A copy of `value` in dicts, lists, text, finite numbers, booleans and None. Raises JsonError naming the place."""
    if value is None or type(value) in (str, bool, int):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise JsonError(f"{key or 'value'}: {float(value)!r} is not a finite number")
        return float(value)
    if isinstance(value, Mapping):
        return {_name(name, key): plain(item, join(key, str(name))) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, f"{key}[{index}]") for index, item in enumerate(value)]
    raise JsonError(f"{key or 'value'}: a {type(value).__name__} has no JSON form; want numbers, text, lists, mappings")


def encode(content: object) -> bytes:
    """A value of `plain` on one line. ASCII only, so that a torn line never ends inside a character."""
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")


def canonical(value: object) -> bytes:
    """The text that digests are made of: sorted names, no spaces. Raises JsonError."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def layout(value: object, depth: int = 0) -> str:
    """Sorted names, one space a level, and a list of plain values on one line: a sample list is one line of a diff."""
    outer, inner = "\n" + " " * depth, "\n" + " " * (depth + 1)
    if isinstance(value, dict) and value:
        items = [f"{json.dumps(name)}: {layout(item, depth + 1)}" for name, item in sorted(value.items())]
        return "{" + inner + f",{inner}".join(items) + outer + "}"
    if isinstance(value, (list, tuple)) and any(isinstance(item, (dict, list, tuple)) for item in value):
        return "[" + inner + f",{inner}".join(layout(item, depth + 1) for item in value) + outer + "]"
    return json.dumps(value, allow_nan=False)


def decode(raw: bytes) -> Any:
    """The value of one JSON text. Raises JsonError with line and column where they are known."""
    try:
        return json_value(raw, lambda text: _DECODER.decode(text.decode("utf-8")))
    except UnicodeDecodeError as error:
        before = raw[: error.start]
        raise JsonError("not UTF-8 text", before.count(b"\n") + 1, error.start - before.rfind(b"\n")) from None
    except json.JSONDecodeError as error:
        raise JsonError(error.msg, error.lineno, error.colno) from None
    except _NotFiniteError as error:
        raise JsonError(f"{error} is not a finite number", *_place_of(str(error), raw.decode("utf-8"))) from None
    except ValueError as error:  # a number of too many digits, or a name twice
        raise JsonError(str(error)) from None


def take(mapping: Any, name: str, kinds: tuple[type, ...], key: str = "") -> Any:
    """mapping[name], checked to be of one of the kinds (a bool is no number). Raises JsonError naming the place."""
    if not isinstance(mapping, Mapping):
        raise JsonError(f"{key or 'value'}: want an object, found {kind_of(mapping)}")
    if name not in mapping:
        raise JsonError(f"{join(key, name)}: missing")
    value = mapping[name]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise JsonError(
            f"{join(key, name)}: want {' or '.join(map(_KIND_NAMES.__getitem__, kinds))}, found {kind_of(value)}"
        )
    return value


def join(key: str, name: str) -> str:
    """The place one name further in: points + b128 = points.b128."""
    return f"{key}.{name}" if key else name


def _name(name: object, key: str) -> str:
    if not isinstance(name, str):
        raise JsonError(f"{key or 'value'}: the name {name!r} is not a string")
    return name


_KIND_NAMES = {**KINDS, dict: "an object", Mapping: "an object", list: "a list"}


def _no_name_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"the name {next(name for name in names if names.count(name) > 1)!r} stands twice in one object"
        )
    return mapping


class _NotFiniteError(ValueError):
    """Its text is the number as it was written."""


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _NotFiniteError(text)
    return value


def _place_of(number: str, text: str) -> tuple[int, int]:
    """Line and column of the first such number outside of strings: json's hooks are not told where they are."""
    tokens = re.finditer(rf'"(?:[^"\\]|\\.)*"|{re.escape(number)}', text)
    start = next(token.start() for token in tokens if token[0] == number)
    return text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)


_DECODER = json.JSONDecoder(object_pairs_hook=_no_name_twice, parse_float=_finite, parse_constant=_finite)


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


def verify_sum(content: Any, key: str, value: object) -> None:
    """Raises JsonError where content["check"] is not the check sum of `value`."""
    written = take(content, "check", (str,), key)
    if written != check_sum(value):
        raise JsonError(
            f"{join(key, 'check')}: {written!r} is not the check sum of this entry: it was altered or damaged; "
            "take it from git again"
        )
