"""Text that others wrote as plain data: JSON, TOML and CSV, of which every fault is a ValueError in words.

Python's parsers raise more: RecursionError where brackets are nested a thousand deep, or where something walks such a
value later, and csv.Error for a cell of more than 131,072 signs. So what is nested deeper than MAX_DEPTH is refused
before anything walks it:

    json_value("[" * 100) raises ValueError("nested deeper than 32 levels")

How many bytes are read is limited before, by core/regular_file.py.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

MAX_DEPTH = 32  # the deepest record of ours has 8 levels
_DEEP = f"nested deeper than {MAX_DEPTH} levels"
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def json_value(text: str | bytes, read: Callable[[Any], Any] = json.loads) -> Any:
    """Returns the value that `read` makes of a JSON text. Raises ValueError."""
    check_depth(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    return read(text)


def toml_table(text: str) -> dict[str, Any]:
    """Returns the table of a TOML text. Raises ValueError."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        # mypy checks this branch also where only Python 3.11 or later, and so no tomli, is installed
        import tomli as tomllib  # type: ignore[import-not-found, unused-ignore]
    try:
        table: dict[str, Any] = tomllib.loads(text)
    except RecursionError:
        raise ValueError(_DEEP) from None
    level: list[Any] = [table]
    for _ in range(MAX_DEPTH):  # keys of many dots make tables in tables without a bracket
        level = [each for value in level for each in (value.values() if isinstance(value, dict) else value)]
        level = [value for value in level if isinstance(value, (dict, list))]
    if level:
        raise ValueError(_DEEP)
    return table


def csv_rows(lines: Iterable[str], *, skipinitialspace: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Yields the number of each line and its cells. Raises ValueError naming the line."""
    reader = csv.reader(lines, strict=True, skipinitialspace=skipinitialspace)
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:
        raise ValueError(f"line {reader.line_num}: no valid CSV: {error}") from None


def check_depth(text: bytes) -> None:
    """Raises ValueError where a JSON text is nested deeper than MAX_DEPTH.

    The innermost pairs of brackets go, level by level; what is left then is deeper, or stands unpaired in a string.
    """
    brackets = text.translate(None, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    if brackets and _depth(text) > MAX_DEPTH:
        raise ValueError(_DEEP)


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
