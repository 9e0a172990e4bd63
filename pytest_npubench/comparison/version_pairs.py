"""Versions of one thing, in a folder: each is installed once, and two of them are measured in turn.

The folder has `environments/NAME` and, for each comparison, `pairs/OLD--NEW` with its journals and logs. Work that was
cut off goes on where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_npubench.comparison.ab_folder import AbFolder, WorkFolder
from pytest_npubench.comparison.ab_run import Terms, compare_in_turn
from pytest_npubench.comparison.environments import Environment
from pytest_npubench.comparison.outcome import Comparison
from pytest_npubench.comparison.versions import Versions
from pytest_npubench.store.journal import recorded


class VersionPairs:
    """`command` names the state file, `arguments` are pytest's. Raises ConfigError, StoreError as WorkFolder does."""

    def __init__(self, path: Path, command: str, versions: Versions, arguments: Sequence[str], terms: Terms) -> None:
        self.path = path.absolute()
        self._versions, self._arguments, self._terms = versions, arguments, terms
        asked = {"versions": [versions.what, *versions.names], "arguments": recorded(arguments)}
        self._folder = WorkFolder(self.path, command, asked)
        self._environments: dict[str, Environment] = {}

    def environment(self, name: str) -> Environment:
        """The environment of a version, installed where it is not. Raises EnvironmentUnusableError."""
        if name not in self._environments:
            path = self.path / "environments" / name
            if not self._folder.is_finished(name):
                self._terms.say(f"installing {self._versions.title(name)}")
                self._versions.install(name, path)
                self._folder.finish(name)
            self._environments[name] = self._versions.environment(name, path)
        return self._environments[name]

    def compare(self, old: str, new: str, num_pairs: int) -> Comparison:
        """The second version held against the first. The first pair says whether both can be measured at all.

        Raises ConfigError where they cannot, EnvironmentUnusableError where one cannot be installed.
        """
        environments = {"A": self.environment(old), "B": self.environment(new)}
        folder = AbFolder(self.path / "pairs" / f"{old}--{new}", environments, self._arguments)
        labels = self._versions.title(old), self._versions.title(new)
        compare_in_turn(environments, self._arguments, folder, self._terms, num_pairs=1, labels=labels)
        return compare_in_turn(environments, self._arguments, folder, self._terms, num_pairs=num_pairs, labels=labels)

    def remove(self) -> None:
        """Takes away environments, journals and all."""
        self._versions.remove(self.path)
