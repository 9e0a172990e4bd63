"""The outermost table of a TOML file, which knows where it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_npubench.core.record_reader import RecordReader, RecordT, WrongEntryError
from pytest_npubench.errors import HardwareFileError

_TOML = RecordReader(table="a table", has_null=False, found=lambda value: f"not {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TomlTable:
    """Reads the tables in it, and itself. Raises HardwareFileError naming file, dotted key and what is allowed."""

    path: Path
    entries: Mapping[str, object]

    def read(self, name: str, of: type[RecordT]) -> RecordT:
        """The table of that name as a record."""
        if name not in self.entries:
            raise self.error(name, "missing; want a table")
        return self._read(of, self.entries[name], name, {}, ())

    def read_itself(self, of: type[RecordT], given: Mapping[str, object], others: Collection[str]) -> RecordT:
        """This table as a record, with the GIVEN fields' values, but for the keys that it has for `others`."""
        return self._read(of, self.entries, "", given, others)

    def error(self, name: str, problem: str) -> HardwareFileError:
        return HardwareFileError(f"{self.path}: {name}: {problem}")

    def _read(
        self, of: type[RecordT], entries: object, place: str, given: Mapping[str, object], others: Collection[str]
    ) -> RecordT:
        try:
            return _TOML.record(of, entries, place, given=given, others=others)
        except WrongEntryError as error:
            raise self.error(error.key, error.problem) from None
