"""Passwords and keys: kept so that nothing that is shown or written can hold them, and found in text of others.

repr(Secret("s3cret")) == str(Secret("s3cret")) == "***"
masked("postgresql://ann:s3cret@db/bench?sslpassword=x") == "postgresql://ann:***@db/bench?sslpassword=***"
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from itertools import count, takewhile
from typing import Any

HIDDEN = "***"
_USER_INFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:/+)(.*)@")
_NAMED = re.compile(r"(?i)((?:password|passwd|pwd|secret|token)\s*=)[^&]*")


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
    """The text with *** in place of every password of an address, well-formed or not: for text that nobody parsed."""
    return _USER_INFO.sub(_without_password, _NAMED.sub(rf"\1{HIDDEN}", text))


def _without_password(match: re.Match[str]) -> str:
    user, colon, _ = match[2].partition(":")
    if not colon:
        return match[0]
    return f"{match[1]}{HIDDEN}@" if "@" in user else f"{match[1]}{user}:{HIDDEN}@"
