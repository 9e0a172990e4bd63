"""Text of others in Markdown of ours: it is neither formatted, nor a link, an image or a mention, nor HTML.

A backslash before a sign of ASCII punctuation makes it a plain sign, and a code span or block ends only at as many
backticks as began it (https://spec.commonmark.org/0.31.2/, 2.4, 4.5 and 6.1); in a table `|` is escaped even there
(https://github.github.com/gfm/, 4.10).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pytest_npubench.plain_text import plain


def cell(text: object) -> str:
    """In a cell of a table."""
    return re.sub(r"[\\`*_~\[\]<>&|#!]", r"\\\g<0>", _one_line(text))


def code_cell(text: object) -> str:
    """In a cell of a table, as code."""
    line = _one_line(text)
    marks = "`" * (_longest_run(line) + 1)
    space = " " if "`" in line else ""
    return f"{marks}{space}{line.replace('|', chr(92) + '|')}{space}{marks}"


def code_block(lines: Iterable[object]) -> str:
    """Lines that nobody is mentioned in, each as it stands."""
    shown = list(map(_one_line, lines))
    marks = "`" * max(3, *(_longest_run(line) + 1 for line in shown))
    return "\n".join([f"{marks}text", *shown, marks])


def _one_line(text: object) -> str:
    return plain(" ".join(str(text).split()))


def _longest_run(line: str) -> int:
    return max(map(len, re.findall("`+", line)), default=0)
