"""Tables for a terminal whose cells are text and nothing else: no markup, no emoji codes, no control characters.

rich reads the strings of a table as markup: a model named "[/data/model]" ends in a MarkupError, and "[int8]" vanishes.
"""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_npubench.plain_text import plain, plain_lines


class PlainTable(Table):
    """A rich table that takes headings and cells as they stand. A cell with a style is a Text made by `cell`."""

    def __init__(self, *headings: str, title: str | None = None, caption: str | None = None, **options: Any) -> None:
        super().__init__(title=title and cell(title), caption=caption and cell(caption), **options)
        for heading in headings:
            self.add_column(heading)

    def add_column(self, header: Any = "", *arguments: Any, **options: Any) -> None:
        """A heading may have lines of its own."""
        super().add_column(Text(plain_lines(header)), *arguments, **options)

    def add_row(self, *cells: Any, **options: Any) -> None:
        super().add_row(*(one if isinstance(one, Text) else cell(one) for one in cells), **options)


def cell(text: object, style: str = "") -> Text:
    """Returns the text in one line, all of it in one style."""
    return Text(plain(text), style=style)


def plain_console(width: int, *, color: bool = False) -> Console:
    """Returns a console that writes into memory, at file.getvalue(); with terminal colours where asked for."""
    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=color,
        no_color=not color,
        record=color,
        highlight=False,
        markup=False,
        emoji=False,
    )


def written(console: Console) -> str:
    """Returns the text that a plain_console printed."""
    return str(console.file.getvalue())  # type: ignore[attr-defined]
