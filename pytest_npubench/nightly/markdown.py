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
    """A text as the content of a table's cell."""
    return re.sub(r"[\\`*_~\[\]<>&|#!]", r"\\\g<0>", _one_line(text))


def code_cell(text: object) -> str:
    """A text as code in a table's cell."""
    line = _one_line(text)
    marks = "`" * (_longest_run(line) + 1)
    space = " " if "`" in line else ""
    return f"{marks}{space}{line.replace('|', chr(92) + '|')}{space}{marks}"


def code_block(lines: Iterable[object]) -> str:
    """The lines as they are, in a block in which no @name notifies a person."""
    shown = list(map(_one_line, lines))
    marks = "`" * max(3, *(_longest_run(line) + 1 for line in shown))
    return "\n".join([f"{marks}text", *shown, marks])


def _one_line(text: object) -> str:
    return plain(" ".join(str(text).split()))


def _longest_run(line: str) -> int:
    return max(map(len, re.findall("`+", line)), default=0)
