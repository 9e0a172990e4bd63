"""Whose hardware file a device's name belongs to.

A name that drivers print is often the beginning of another one. So of the files whose patterns hit a name, those that
spell out most of it describe the device: of "NVIDIA H200 NVL", `H200` spells out 4 characters, `H200 NVL` 8, `.*` none.
Files that spell out equally much describe it equally, and the device runs the cases of each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count

NEXT_STEP = "no hardware file describes it; `npubench hardware --new hw/NAME.toml` writes one"


def spelled_characters(patterns: Sequence[str], device_name: str) -> int | None:
    """Returns the most characters of the name that one of the regular expressions spells out; None where none hits.
    What `.*` and `.+` take is not spelled out."""
    return max((_spelled(hit) for pattern in patterns if (hit := _search(pattern, device_name))), default=None)


def closest_files(patterns_of_files: Mapping[str, Sequence[str]], device_name: str) -> tuple[str, ...]:
    """Returns the names of the files that describe a device of this name, by each file's patterns."""
    spelled = {name: spelled_characters(patterns, device_name) for name, patterns in patterns_of_files.items()}
    most = max((number for number in spelled.values() if number is not None), default=None)
    return tuple(name for name, number in spelled.items() if number is not None and number == most)


def _search(pattern: str, device_name: str) -> re.Match[str] | None:
    numbers = count()
    grouped = re.sub(r"(?<!\\)\.[*+]", lambda wild: f"(?P<any_{next(numbers)}>{wild[0]})", pattern)
    return re.search(grouped, device_name, re.IGNORECASE)


def _spelled(hit: re.Match[str]) -> int:
    wild = sum(len(text) for name, text in hit.groupdict(default="").items() if name.startswith("any_"))
    return len(hit[0]) - wild
