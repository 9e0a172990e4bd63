"""A TOML file whose tables are read as records, and whose faults name the file."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from pytest_npubench.core.documents import toml_table
from pytest_npubench.core.record_reader import TOML, RecordT, WrongEntryError
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text
from pytest_npubench.errors import ConfigError

_parsed = lru_cache(maxsize=64)(toml_table)
"""By the file's text, since most hardware files are `like` one of a few. Nobody changes a parsed table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlTable:
    """Reads the tables in it, and itself. Its errors name the file, the dotted key and what is allowed."""

    path: Path
    entries: Mapping[str, object]
    kind_of_error: type[ConfigError]

    @classmethod
    def of(cls, path: Path, kind_of_error: type[ConfigError]) -> TomlTable:
        """Returns the table of a file."""
        try:
            entries = _parsed(read_text(path, SMALL_BYTES))
        except OSError as error:
            raise kind_of_error(f"{path}: cannot be read: {error.strerror}") from error
        except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are both ValueErrors
            raise kind_of_error(f"{path}: not a TOML file in UTF-8: {error}") from error
        return cls(path=path, entries=entries, kind_of_error=kind_of_error)

    def read(self, name: str, of: type[RecordT]) -> RecordT:
        """Reads the table of that name as a record."""
        if name not in self.entries:
            raise self.error(name, "missing; want a table")
        with self.named_errors():
            return TOML.record(of, self.entries[name], name)

    def read_itself(
        self, of: type[RecordT], given: Mapping[str, object] = MappingProxyType({}), others: Collection[str] = ()
    ) -> RecordT:
        """This table as a record, with the GIVEN fields' values, but for the keys that it has for `others`."""
        with self.named_errors():
            return TOML.record(of, self.entries, given=given, others=others)

    def error(self, name: str, problem: str) -> ConfigError:
        return self.kind_of_error(f"{self.path}: {WrongEntryError(name, problem)}")

    @contextmanager
    def named_errors(self) -> Iterator[None]:
        """Turns WrongEntryError into the file's own."""
        try:
            yield
        except WrongEntryError as error:
            raise self.error(error.key, error.problem) from None
