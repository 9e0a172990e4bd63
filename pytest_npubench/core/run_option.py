"""A setting of a run, as the plugin and the suites declare it: an option of pytest's and a key of its ini file."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Option:
    """One setting. `read` turns text into its value and raises ValueError with what is allowed. A switch, which is true
    where it is given, has no metavar."""

    name: str
    metavar: str
    help: str
    read: Callable[[str], Any]
    default: Any = None

    @property
    def flag(self) -> str:
        return "--npubench-" + self.name.replace("_", "-")

    def argument(self, value: object) -> str:
        """What a command line gives it this value by."""
        return f"{self.flag}={value}" if self.metavar else self.flag

    @property
    def key(self) -> str:
        return f"npubench_{self.name}"


def names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("want true or false")
    return text.lower() == "true"


def number(text: str, want: str, fits: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or not fits(value):
        raise ValueError(want)
    return value


def fraction(text: str) -> float:
    return number(text, "want a fraction above 0 and up to 1, such as 0.05", lambda value: 0 < value <= 1)
