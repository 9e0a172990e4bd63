"""What the commands print reaches a terminal as plain text, whoever wrote it.

Every sign that a terminal would obey, but for the line break, is shown and not sent, so a command may print ids, paths,
journals and answers of servers as they are. Colours of ours go around that, by `print_styled`.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from pytest_npubench.plain_text import plain_lines


class PlainStream:
    """A stream whose `write` sends plain text; everything else is the inner stream's."""

    def __init__(self, inner: TextIO) -> None:
        self.inner = inner

    def write(self, text: str) -> int:
        self.inner.write(plain_lines(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@contextmanager
def plain_streams() -> Iterator[None]:
    """Makes stdout and stderr plain inside. A sign that the terminal's encoding lacks is replaced; a stream that was
    closed before the process began (None in Python) stays so."""
    before = sys.stdout, sys.stderr
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    sys.stdout, sys.stderr = (stream and PlainStream(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def print_styled(text: str) -> None:
    """Prints text with terminal colours or commands of ours; the text in it was made plain before."""
    stream = sys.stdout
    (stream.inner if isinstance(stream, PlainStream) else stream).write(text)
    stream.flush()
