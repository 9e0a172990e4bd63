"""What a journal's records must hold, checked in one place for writer and reader: nobody behind meets another type.

A field that a kind requires is there; one that it may have is of its type, or null, where it is there. Numbers are
finite as floats, times have an offset from UTC, and nothing is nested deeper than MAX_DEPTH. Fields that stand nowhere
below are kept as they are, and so are kinds of records.

Worked example: check_record({"record": "note", "session": "s", "text": 5}) raises
JsonError("text: want a string, found a whole number").
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

from pytest_npubench.store.json_text import JsonError, take

MAX_DEPTH = 32  # the deepest record of ours has 8 levels
LARGEST = 1.7976931348623157e308  # of the finite floats
CACHES = ("cold", "warm")
BETTER = ("lower", "higher")

Check = Callable[[Any], None]
"""Raises JsonError where a value is none of its kind. The message begins with the place inside of the value, and who
looks into a container puts the item's place in front: most values are right, and no place is made up for them."""


def _is(*kinds: type) -> Check:
    exact = frozenset(dict if kind is Mapping else kind for kind in kinds)

    def check(value: Any) -> None:
        if type(value) not in exact:
            take({"": value}, "", kinds)

    return check


def _number(value: Any) -> None:
    if type(value) is float:  # finite: json_text sees to it
        return
    take({"": value}, "", (int, float))
    if not -LARGEST <= value <= LARGEST:
        raise JsonError(f": a whole number of {len(str(abs(value)))} digits is larger than any float")


def _numbers(value: Any) -> None:
    _list(value)
    if not set(map(type, value)) <= {float}:
        _items(value, _number)


def _items(values: Iterable[Any], inner: Check) -> None:
    place = 0
    try:
        for place, item in enumerate(values):  # noqa: B007 - the place where it ended
            inner(item)
    except JsonError as error:
        raise JsonError(f"[{place}]{error}") from None


def _one_of(*allowed: str) -> Check:
    def check(value: Any) -> None:
        if not isinstance(value, str) or value not in allowed:
            raise JsonError(f": want {' or '.join(allowed)}, found {value!r}")

    return check


def _pair(value: Any) -> None:
    _numbers(value)
    if len(value) != 2:
        raise JsonError(f": want two numbers, found {len(value)}")


def _lists_of_numbers(value: Any) -> None:
    _list(value)
    _items(value, _numbers)


def _table_of(inner: Check) -> Check:
    def check(value: Any) -> None:
        _object(value)
        name = ""
        try:
            for name, item in value.items():  # noqa: B007 - the name where it ended
                inner(item)
        except JsonError as error:
            raise JsonError(f".{name}{error}") from None

    return check


def _fields(required: Mapping[str, Check], optional: Mapping[str, Check]) -> Check:
    known = {**required, **optional}

    def check(value: Any) -> None:
        _object(value)
        for name in required:
            if name not in value:
                raise JsonError(f".{name}: missing")
        name = ""
        try:
            for name, item in value.items():
                inner = known.get(name)
                if inner is not None and (item is not None or name in required):
                    inner(item)
        except JsonError as error:
            raise JsonError(f".{name}{error}") from None

    return check


def _time(value: Any) -> None:
    _text(value)
    try:
        found = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        found = None
    # a year from either end of time: an offset of hours leads beyond it
    if found is None or found.tzinfo is None or not 1 < found.year < 9999:
        raise JsonError(f": want a time like 2026-11-21T13:05:00+00:00, found {value!r}")


def _count(value: Any) -> None:
    _whole(value)
    if not 0 <= value <= 2**53:
        raise JsonError(": want a whole number from 0 to 2^53")


_text, _object, _list, _flag, _whole = _is(str), _is(Mapping), _is(list, tuple), _is(bool), _is(int)
_VERDICT = _fields({"kind": _text}, {"reason": _text, "ratio": _number, "interval": _pair, "mde": _number})
_METRIC = _fields(
    {"unit": _text, "value": _number, "better": _one_of(*BETTER), "samples": _numbers},
    {
        "gate": _text,
        "margin": _number,
        "processes": _lists_of_numbers,
        "verdict": _VERDICT,
    },
)

# what a reader may rely on; every record may have more fields, and there may be more kinds
REQUIRED: Mapping[str, Mapping[str, Check]] = {
    "session": {"started_at": _time, "worker": _is(str, type(None)), "host": _object, "settings": _object},
    "device": {"digest": _text, "fingerprint": _object},
    "compile": {"fingerprint": _text, "name": _text, "compile_s": _number, "cache": _one_of(*CACHES)},
    "round": {
        "fingerprint": _text,
        "campaign": _text,
        "campaign_digest": _text,
        "round": _count,
        "points": _table_of(_numbers),
    },
    "case": {
        "fingerprint": _is(str, type(None)),  # a case that never reached a device has none
        "case": _text,
        "id": _text,
        "hardware": _text,
        "digest": _text,
        "verdict": _VERDICT,
    },
    "note": {"text": _text},
    "torn": {"num_bytes": _count},
    "salvaged": {"num_lost": _count},
    "end": {"exit_status": _whole, "counts": _object},
}
OPTIONAL: Mapping[str, Mapping[str, Check]] = {
    "session": {"run": _text},
    "compile": {"campaign": _text, "campaign_digest": _text},
    "round": {
        "failures": _table_of(_text),
        "duration_s": _number,
        "num_late_compiles": _count,
        "disturbed": _text,
        "complete": _flag,
    },
    "case": {
        "node": _text,
        "model": _text,
        "axes": _object,
        "device": _text,
        "duration_s": _number,
        "resumed": _flag,
        "campaign": _text,
        "limits": _table_of(_number),
        "what": _text,
        "measured_s": _number,
        "predicted_s": _number,
        "error": _number,
        "error_interval": _pair,
        "repeat_error": _number,
        "metrics": _table_of(_METRIC),
        "detail": _object,
        "frozen": _table_of(_number),
    },
}
_CHECKS = {kind: _fields(REQUIRED[kind], OPTIONAL.get(kind, {})) for kind in REQUIRED}
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def check_record(record: Any) -> None:
    """Raises JsonError where a record lacks what its kind requires, or holds what no reader could use; an unknown kind
    needs only record and session."""
    kind = take(record, "record", (str,))
    take(record, "session", (str,))
    if kind in _CHECKS:
        try:
            _CHECKS[kind](record)
        except JsonError as error:
            raise JsonError(str(error)[1:]) from None


def check_depth(text: bytes) -> None:
    """Raises JsonError where a JSON text is nested deeper than MAX_DEPTH, before anything walks it.

    The innermost pairs of brackets go, level by level; what is left then is deeper, or stands unpaired in a string.
    """
    brackets = text.translate(None, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets and _depth(text) > MAX_DEPTH:
        raise JsonError(f"nested deeper than {MAX_DEPTH} levels")


def _depth(text: bytes) -> int:
    """Levels of brackets outside of strings."""
    depth = deepest = 0
    in_string = escaped = False
    for byte in text:
        if in_string:
            in_string, escaped = escaped or byte != 0x22, byte == 0x5C and not escaped
        elif byte == 0x22:
            in_string = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest
