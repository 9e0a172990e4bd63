"""What the commands have in common: parsers with an example, values of arguments, columns of text, one-line errors."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_npubench.plain_text import plain

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]


def add_command(commands: Commands, name: str, help_text: str, example: str, **options: Any) -> argparse.ArgumentParser:
    """A command's parser, with its help and an example in it."""
    return commands.add_parser(
        name,
        help=help_text,
        description=f"{help_text}.",
        epilog=f"example: {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,  # others break the example inside a name
        **options,
    )


def positive_integer(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: want a whole number of at least 1")
    return value


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r}: want seconds above 0")
    return value


def print_error(error: object) -> None:
    """One line on stderr, whatever the names in it hold."""
    print(f"npubench: error: {plain(' '.join(str(error).split()))}", file=sys.stderr)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines of plain text, each column as wide as its longest cell; the last one is not padded."""
    shown = [list(map(plain, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in shown), strict=True)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in shown
    )
