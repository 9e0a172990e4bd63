"""Where a history lies: a path ending in .db or .sqlite, sqlite:///PATH, or postgresql://USER:PASSWORD@HOST/DATABASE.

PostgreSQL is spoken through psycopg 3. Passwords never reach a message:
masked("postgresql://ann:secret@db/bench?sslpassword=x") == "postgresql://ann:***@db/bench?sslpassword=***".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pytest_npubench.errors import HistoryError

SUFFIXES = (".db", ".sqlite")
ALLOWED = (
    "want a path ending in .db or .sqlite, sqlite:///PATH (sqlite:////PATH from the root), "
    "or postgresql://USER:PASSWORD@HOST/DATABASE"
)
POSTGRES = ("postgres", "postgresql", "postgresql+psycopg")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A database: the file where it is SQLite, else the server's URL with its password; `shown` is without it."""

    path: Path | None = None
    server: str | None = None
    shown: str


def parse_address(text: str) -> Address:
    """Raises HistoryError, without the password, where the text is no address of a kind that is known."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        if not text.endswith(SUFFIXES):
            raise HistoryError(f"history {masked(text)!r}: {ALLOWED}")
        return Address(path=Path(text), shown=text)
    if scheme == "sqlite":
        if not rest.startswith("/") or rest in ("/", "/:memory:") or "?" in rest:
            raise HistoryError(f"history {masked(text)!r}: a history in SQLite is a file, without ? options; {ALLOWED}")
        return Address(path=Path(rest[1:]), shown=text)
    if scheme not in POSTGRES:
        raise HistoryError(f"history {masked(text)!r}: {scheme}:// is not known; {ALLOWED}")
    return Address(server=f"postgresql+psycopg://{rest}", shown=masked(text))


def masked(text: str) -> str:
    """The text with *** in place of every password, also where it is no well-formed URL."""
    hidden = re.sub(r"(://[^/:@]*):.*@", r"\1:***@", text)
    return re.sub(r"([?&](?:ssl)?password=)[^&]*", r"\1***", hidden)
