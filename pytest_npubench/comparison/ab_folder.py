"""The folder of an A/B run: a journal and a log for each process, and ab.json, which says what is finished.

ab.json is replaced as a whole, so a run that is killed at any instant goes on from the last process that ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_npubench.comparison.environments import Environment
from pytest_npubench.core.documents import json_value
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text, replace_text
from pytest_npubench.errors import ConfigError, StoreError
from pytest_npubench.store.journal import recorded

VERSION = 1
WORDS = {"arguments": "pytest arguments"}


class WorkFolder:
    """A folder that a command works in, with a file COMMAND.json that says what was asked and what is finished.

    Raises ConfigError where the folder holds something else, or the work on another question; StoreError where it
    cannot be read or written.
    """

    def __init__(self, path: Path, command: str, asked: Mapping[str, Any]) -> None:
        self.path = path
        self._command = command
        self._asked = {"format": f"npubench-{command}", "version": VERSION, **asked}
        self._finished: dict[str, Any] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._take_over()
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        self._write()

    def is_finished(self, name: str) -> bool:
        return name in self._finished

    def finish(self, name: str, **facts: Any) -> None:
        """Notes that a part of the work is done, with facts about it. Raises StoreError."""
        self._finished[name] = facts
        self._write()

    @property
    def _file(self) -> Path:
        return self.path / f"{self._command}.json"

    def _take_over(self) -> None:
        if not self._file.exists():
            if next(self.path.iterdir(), None) is not None:
                raise ConfigError(
                    f"--keep {self.path}: holds other files; want an empty folder or that of an earlier {self._command}"
                )
            return
        earlier = self._read()
        for name, value in self._asked.items():
            if earlier[name] != value:
                what = WORDS.get(name, name)
                raise ConfigError(f"--keep {self.path}: holds a run of other {what}; name another folder")
        self._finished = earlier["finished"]

    def _read(self) -> dict[str, Any]:
        try:
            state = json_value(read_text(self._file, SMALL_BYTES))
            if (state["format"], state["version"]) != (self._asked["format"], VERSION):
                raise StoreError(f"{self._file}: written by format {state['version']}; this version reads {VERSION}")
            return {name: state[name] for name in (*self._asked, "finished")}
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{self._file}: cannot be read: {error!r}") from None

    def _write(self) -> None:
        try:
            replace_text(self._file, json.dumps({**self._asked, "finished": self._finished}, indent=1) + "\n")
        except OSError as error:
            raise StoreError(f"{self._file}: {error.strerror}") from error


class AbFolder(WorkFolder):
    """The work is one process of pytest after the other, each with a journal and a log."""

    def __init__(self, path: Path, environments: Mapping[str, Environment], arguments: Sequence[str]) -> None:
        sides = {side: environment.to_json() for side, environment in environments.items()}
        super().__init__(path, "ab", {"environments": sides, "arguments": recorded(arguments)})

    def journal(self, name: str) -> Path:
        return self.path / f"{name}.jsonl"

    def log(self, name: str) -> Path:
        return self.path / f"{name}.log"

    def is_finished(self, name: str) -> bool:
        return super().is_finished(name) and self.journal(name).exists()

    def set_aside(self, name: str) -> None:
        """What a failed or interrupted process left stays beside, and does not count."""
        if self.journal(name).exists():
            self.journal(name).replace(self.path / f"{name}.failed.jsonl")

    def last_line(self, name: str) -> str:
        """Returns the last line of the process's output; empty where there is none."""
        try:
            lines = self.log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "no output")
