"""Passwords and keys: kept so that nothing that is shown or written can hold them, and found in text of others.

A server may send back the key that it was sent, whole or cut short, as it is or encoded for a URL, JSON or HTML, in hex
or base64. So each key that this process sends is noted by `keep_out`, and `without_kept` hides it in text of others.

repr(Secret("s3cret")) == str(Secret("s3cret")) == "***"
masked("postgresql://ann:s3cret@db/bench?sslpassword=x") == "postgresql://ann:***@db/bench?sslpassword=***"
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import count, takewhile
from typing import Any

HIDDEN = "***"
WINDOW = 8  # signs in a row that are no accident; a shorter key is hidden as a whole
_USER_INFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:/+)(.*)@")
_NAMED = re.compile(r"(?i)((?:password|passwd|pwd|secret|token|api[-_]?key)\s*=)[^&]*")
_SIGN = re.compile(
    r"%([0-9a-fA-F]{2})|\\+u([0-9a-fA-F]{4})|\\+x([0-9a-fA-F]{2})|&#[xX]([0-9a-fA-F]{1,6});|&#([0-9]{1,7});|\\*(.)",
    re.DOTALL,
)
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{8,}")
_HEX = re.compile(r"[0-9a-fA-F]{8,}")
_kept: set[str] = set()
View = tuple[str, Sequence[tuple[int, int]]]
"""A text decoded, and where in the text each of its signs stands."""


class Secret:
    """A text that shows itself as ***, in tracebacks and records too. Only `reveal` gives it, to whom it is for."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> Any:
        raise TypeError("a secret is not pickled")

    def reveal(self) -> str:
        return self._text


def keep_out(key: str) -> None:
    """From here on `without_kept` hides the key."""
    if key:
        _kept.add(key)


def without_kept(text: str) -> str:
    """Returns a text that others wrote, with *** for each stretch of 8 signs or more of a key that was noted."""
    hidden = bytearray(len(text))
    for key in _kept:
        width = min(WINDOW, len(key))
        pieces = {key[start : start + width] for start in range(len(key) - width + 1)}
        for decoded, spans in _views(text):
            for piece in pieces:
                start = decoded.find(piece)
                while start >= 0:
                    begin, end = spans[start][0], spans[start + width - 1][1]
                    hidden[begin:end] = b"\1" * (end - begin)
                    start = decoded.find(piece, start + 1)
    if not any(hidden):
        return text
    signs = ("\1" if is_hidden else sign for sign, is_hidden in zip(text, hidden, strict=True))
    return re.sub("\1+", HIDDEN, "".join(signs))


def _views(text: str) -> Iterator[View]:
    """Yields the text as it is, without escapes, and each of its stretches that may be base64 or hex, decoded."""
    yield text, [(place, place + 1) for place in range(len(text))]
    if re.search(r"[%\\]|&#", text):
        signs = list(_SIGN.finditer(text))
        yield "".join(map(_sign, signs)), [sign.span() for sign in signs]
    for stretch in _BASE64.finditer(text):
        for offset in range(4):
            digits = stretch[0][offset:]
            digits = digits[: len(digits) - (len(digits) % 4 == 1)]
            raw = base64.b64decode(digits + "=" * (-len(digits) % 4), b"-_" if re.search("[-_]", digits) else b"+/")
            yield raw.decode("latin-1"), [stretch.span()] * len(raw)
    for stretch in _HEX.finditer(text):
        for offset in range(2):
            digits = stretch[0][offset:]
            raw = bytes.fromhex(digits[: len(digits) // 2 * 2])
            yield raw.decode("latin-1"), [stretch.span()] * len(raw)


def _sign(match: re.Match[str]) -> str:
    *in_hex, decimal, plain = match.groups()
    if plain:
        return plain
    code = int(decimal) if decimal else int(next(filter(None, in_hex)), 16)
    return chr(code) if code < 0x110000 else "?"


def take_from_environment(names: Collection[str]) -> dict[str, str]:
    """Takes these variables out of this process's environment. Their values go out of what /proc/PID/environ shows to
    every process of the user too, which tells how the process was started whatever it has unset since."""
    import ctypes

    block = ctypes.POINTER(ctypes.c_void_p).in_dll(ctypes.CDLL(None), "environ")
    for address in takewhile(bool, map(block.__getitem__, count())):
        name, _, value = ctypes.string_at(address).partition(b"=")
        if os.fsdecode(name) in names:
            ctypes.memset(address + len(name) + 1, 0, len(value))
    return {name: os.environ.pop(name) for name in names if name in os.environ}


def masked(text: str) -> str:
    """Returns the text with *** in place of every password of an address, well-formed or not: for text that nobody
    parsed."""
    return _USER_INFO.sub(_without_password, _NAMED.sub(rf"\1{HIDDEN}", text))


def _without_password(match: re.Match[str]) -> str:
    user, colon, _ = match[2].partition(":")
    if not colon:
        return match[0]
    return f"{match[1]}{HIDDEN}@" if "@" in user else f"{match[1]}{user}:{HIDDEN}@"
