"""What the commands have in common: parsers with an example, values of arguments, columns of text, one-line errors."""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

from pytest_npubench.core import run_option
from pytest_npubench.core.run_folders import RunFolders, short_path
from pytest_npubench.core.secret import masked
from pytest_npubench.errors import StoreError, did_you_mean
from pytest_npubench.plain_text import plain

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
LARGEST_SEED = 2**32 - 1
LONGEST_S = 31_536_000  # a year
LOWEST_RATE_PER_S, HIGHEST_RATE_PER_S = 1e-6, 1e6
LONGEST_SHOWN = 60
BARS = "▁▂▃▄▅▆▇█"


class Parser(argparse.ArgumentParser):
    """An argparse parser that repeats no password. It takes the "--" of `--option=--` for a missing value: argparse
    drops it and leaves an empty list (https://github.com/python/cpython/issues/59317, mended in Python 3.13). No option
    is taken for a longer one that begins as it does."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **options})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reports an unknown option by the parser that was asked, which can suggest the right one."""
        parsed, rest = super().parse_known_args(args, namespace)
        for action in self._actions:
            value = getattr(parsed, action.dest, None)
            if action.nargs is None and (value == [] != action.default or (isinstance(value, list) and [] in value)):
                self.error(f"argument {'/'.join(action.option_strings) or action.metavar}: expected one argument")
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}{self._meant(rest)}")
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Suggests the nearest choice for a word that is no choice."""
        if wrong := re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)$", message, re.DOTALL):
            message += did_you_mean(wrong[1], re.split(r"\W*, \W*", wrong[2].strip("'")))
        super().error(masked(message))

    def _meant(self, words: Sequence[str]) -> str:
        typed = [word.partition("=")[0] for word in words if word.startswith("-")]
        return did_you_mean(typed[0], list(self._option_string_actions)) if typed else ""


class HelpText(argparse.HelpFormatter):
    """Help text whose short lines stay as they are. A long command continues behind a backslash, as in a shell, and is
    broken inside no name; other lines are filled one by one."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(line if len(line) <= width else _filled(line, width) for line in text.splitlines())


def _filled(line: str, width: int) -> str:
    if "npubench " not in line:
        return textwrap.fill(line, width)
    go_on = " \\"
    lines = textwrap.wrap(
        line, width - len(go_on), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )
    return f"{go_on}\n".join(lines)


def add_command(commands: Commands, name: str, help_text: str, example: str, **options: Any) -> argparse.ArgumentParser:
    """Adds a command's parser, with its help and an example in it."""
    return commands.add_parser(
        name,
        help=help_text,
        description=f"{help_text}.",
        epilog=f"example: {example}",
        formatter_class=HelpText,
        **options,
    )


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_trace_options(parser: argparse.ArgumentParser) -> None:
    """What a trace's file may leave open."""
    parser.add_argument(
        "--time-unit", choices=("s", "ms", "us", "ns"), help="of a trace's arrivals (default: it shows)"
    )
    parser.add_argument(
        "--block-tokens", metavar="N", type=token_count, help="of an id of a trace's prompts (default: it shows)"
    )


def add_journal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "journal",
        metavar="JOURNAL",
        nargs="?",
        default="",
        type=lambda text: Path(text) if text else short_path(RunFolders.here().journal),
        help="the journal of the run (default: that of runs in this folder)",
    )


def history_url(text: str) -> str:
    """The type of an option that names a history; empty: that of runs in this folder."""
    from pytest_npubench.store.history import DEFAULT_URL

    return text or RunFolders.here().history or DEFAULT_URL


def check_other_file(output: Path | None, *sources: Path) -> None:
    """Raises StoreError where the output file is also an input."""
    for source in sources:
        if output is not None and output.exists() and source.exists() and output.samefile(source):
            raise StoreError(f"{output} is the file that is read; want another one to write")


def print_document(name: str, /, **facts: Any) -> None:
    """Prints version 1 of the JSON document npubench-NAME on stdout (docs/command-documents.md). Paths become text."""
    print(json.dumps({"format": f"npubench-{name}", "version": 1, **facts}, indent=2, default=str))


def whole_number(most: int) -> Callable[[str], int]:
    """The type of an option that is a number from 1 to `most`: a limit on what is looped over or held in memory."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = 0
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"{_short(text)}: want a whole number from 1 to {most}")
        return value

    return read


request_count = whole_number(1_000_000)
token_count = whole_number(1_048_576)  # of a sequence: the longest context that any model is served with
length_count = whole_number(16_384)  # of an operator whose splits are all looked at
device_count = whole_number(1024)
process_count = whole_number(256)
entry_count = whole_number(1_000_000)


def seed(text: str) -> int:
    """The type of an option that seeds random numbers."""
    try:
        value = int(text) if text.isascii() and text.isdigit() else -1
    except ValueError:  # thousands of digits
        value = -1
    if not 0 <= value <= LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"{_short(text)}: want a whole number from 0 to {LARGEST_SEED}")
    return value


def number(text: str, want: str, fits: Callable[[float], bool]) -> float:
    """A finite number for which `fits` holds. Raises ArgumentTypeError with `want`, which says what is allowed."""
    try:
        return run_option.number(text, want, fits)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{_short(text)}: want {want}") from None


def seconds(text: str) -> float:
    return number(text, f"seconds above 0, up to {LONGEST_S}", lambda value: 0 < value <= LONGEST_S)


def time_limit(text: str) -> float:
    """Converts a time with its unit to seconds: "125ms" is 0.125."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", text.strip())
    value, scale = (match[1], 1e-3 if match[2] == "ms" else 1.0) if match else ("none", 1.0)
    want = f"a time above 0 with its unit, s or ms, such as 10s or 125ms, up to {LONGEST_S} s"
    try:
        return scale * number(value, want, lambda amount: 0 < amount * scale <= LONGEST_S)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{_short(text)}: want {want}") from None


def rate(text: str) -> float:
    """The type of an option in requests per second."""
    want = f"requests a second, {LOWEST_RATE_PER_S:g} to {HIGHEST_RATE_PER_S:g}"
    return number(text, want, lambda value: LOWEST_RATE_PER_S <= value <= HIGHEST_RATE_PER_S)


def percent(text: str) -> float:
    """Converts a percentage to a fraction: 25% is 0.25. Up to 1 the sign is wanted: 0.9 may well be 90%."""
    digits = text.strip().removesuffix("%")
    if not digits.isascii() or not digits.replace(".", "", 1).isdigit() or not 0 < float(digits) <= 100:
        raise argparse.ArgumentTypeError(f"{_short(text)}: want a part above 0 up to 100 %, such as 25%")
    if float(digits) <= 1 and not text.strip().endswith("%"):
        raise argparse.ArgumentTypeError(f"{_short(text)}: want {100 * float(digits):g}% or {_short(digits + '%')}")
    return float(digits) / 100


def _short(text: str) -> str:
    """A text as an error message repeats it."""
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}...")


def say(text: str) -> None:
    """Prints one line on stdout, whatever the names in it hold."""
    print(plain(text))


def print_error(error: object) -> None:
    """Prints one line on stderr, whatever the names in it hold."""
    print(f"npubench: error: {plain(' '.join(str(error).split()))}", file=sys.stderr)


def sparkline(values: Sequence[float], flat: str = "▁") -> str:
    """Draws one sign a value, its height between the smallest and the largest: 1, 2, 3 is "▁▅█"; `flat` where all are
    equal."""
    low, high = min(values), max(values)
    if low == high:
        return flat * len(values)
    return "".join(BARS[round((value - low) / (high - low) * (len(BARS) - 1))] for value in values)


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines of plain text, each column as wide as its longest cell; the last one is not padded."""
    shown = [list(map(plain, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in shown), strict=True)]
    return "\n".join(
        "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in shown
    )
