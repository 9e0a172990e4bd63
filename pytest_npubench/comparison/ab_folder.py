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

FORMAT = "npubench-ab"
VERSION = 1
STATE = "ab.json"


class AbFolder:
    """Raises ConfigError where the folder holds something else, or a run of other environments or arguments;
    StoreError where it cannot be read or written."""

    def __init__(self, path: Path, environments: Mapping[str, Environment], arguments: Sequence[str]) -> None:
        self.path = path
        self._state: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "environments": {side: found.to_json() for side, found in environments.items()},
            "arguments": recorded(arguments),
            "finished": {},
        }
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._take_over()
            self._write()
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error

    def journal(self, name: str) -> Path:
        return self.path / f"{name}.jsonl"

    def log(self, name: str) -> Path:
        return self.path / f"{name}.log"

    def is_finished(self, name: str) -> bool:
        return name in self._state["finished"] and self.journal(name).exists()

    def finish(self, name: str, exit_status: int, duration_s: float) -> None:
        self._state["finished"][name] = {"exit_status": exit_status, "duration_s": round(duration_s, 3)}
        try:
            self._write()
        except OSError as error:
            raise StoreError(f"{self.path / STATE}: {error.strerror}") from error

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

    def _take_over(self) -> None:
        if not (self.path / STATE).exists():
            if next(self.path.iterdir(), None) is not None:
                raise ConfigError(f"--keep {self.path}: holds other files; want an empty folder or that of an A/B run")
            return
        earlier = self._read()
        for name, what in (("environments", "environments"), ("arguments", "pytest arguments")):
            if earlier[name] != self._state[name]:
                raise ConfigError(f"--keep {self.path}: holds a run of other {what}; name another folder")
        self._state["finished"] = earlier["finished"]

    def _read(self) -> dict[str, Any]:
        path = self.path / STATE
        try:
            state = json_value(read_text(path, SMALL_BYTES))
            if state["format"] != FORMAT or state["version"] != VERSION:
                raise StoreError(f"{path}: written by format {state['version']}; this version reads {VERSION}")
            return {name: state[name] for name in self._state}
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path}: cannot be read: {error!r}") from None

    def _write(self) -> None:
        replace_text(self.path / STATE, json.dumps(self._state, indent=1) + "\n")
