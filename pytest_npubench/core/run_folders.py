"""Where the runs of a folder keep baselines, journal and history, and their margin, for the commands beside them.

As in a run, [tool.npubench] of the root's pyproject.toml comes after the ini file's keys, and these after options in
its `addopts` and in PYTEST_ADDOPTS. The root is pytest's.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_npubench.core.documents import toml_table
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text
from pytest_npubench.errors import ConfigError
from pytest_npubench.plain_text import plain

DEFAULT_BASELINES = "baselines"
NAMES = ("baselines", "journal", "hardware", "history", "margin")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolders:
    """Absolute paths. hardware: the folder of further hardware files, and history: its address as it is written, where
    a setting names one, and so margin."""

    baselines: Path
    journal: Path
    hardware: Path | None
    history: str | None = field(repr=False)  # it may hold a password
    margin: str | None

    @classmethod
    def of(cls, root: Path, here: Path, values: Mapping[str, str | None]) -> RunFolders:
        """Returns the folders of a run with these settings that is started in `here`."""
        journal, hardware = values["journal"], values["hardware"]
        return cls(
            baselines=root / (values["baselines"] or DEFAULT_BASELINES),
            journal=here / journal if journal else root / ".npubench" / "journal.jsonl",
            hardware=here / hardware if hardware else None,
            history=values["history"],
            margin=values["margin"],
        )

    @classmethod
    def here(cls) -> RunFolders:
        """Returns the folders of a run that is started here without options. Raises ConfigError as `at`."""
        return cls.at(Path.cwd())

    @classmethod
    def at(cls, here: Path) -> RunFolders:
        """The same of a run that is started in that folder. Raises ConfigError for settings that cannot be read."""
        import pytest
        from _pytest.config.findpaths import determine_setup

        try:
            root, _, ini, *_ = determine_setup(
                inifile=None, override_ini=None, args=[], rootdir_cmd_arg=None, invocation_dir=here
            )
            table = settings_table(root / "pyproject.toml")
            keys: dict[str, Any] = {name: getattr(value, "value", value) for name, value in ini.items()}
            options = _options(keys.get("addopts", ""))
        except (pytest.UsageError, ValueError) as error:
            raise ConfigError(plain(f"settings of runs in {here}: {error}")) from None
        written = {name: keys.get(f"npubench_{name}") or str(table.get(name, "")) or None for name in NAMES}
        values = {name: options[name] or written[name] for name in NAMES}
        return cls.of(root, here, values)


def baselines_of(journal: Path) -> Path | None:
    """Returns the baselines of the runs that write this journal, where it lies in their folder; else None."""
    path = journal.resolve()
    try:
        folders = RunFolders.at(path.parent.parent)
    except ConfigError:
        return None
    return short_path(folders.baselines) if folders.journal == path else None


def other_baselines_of(journal: Path) -> Path | None:
    """The same, None where they are those of runs here too."""
    folder = baselines_of(journal)
    with suppress(ConfigError):
        return None if folder and folder.resolve() == RunFolders.here().baselines else folder
    return folder


def settings_table(path: Path) -> Mapping[str, Any]:
    """Returns the table [tool.npubench] of this pyproject.toml; empty without one. Raises ValueError with the path."""
    if not path.is_file():
        return {}
    try:
        table = toml_table(read_text(path, SMALL_BYTES)).get("tool", {}).get("npubench", {})
    except (OSError, ValueError) as error:
        raise ValueError(plain(f"{path}: {error}")) from None
    if not isinstance(table, dict):
        raise ValueError(f"{path}: [tool.npubench]: want a table, not {table!r}")
    return table


def _options(addopts: str | list[str]) -> dict[str, str | None]:
    """Values of options that every run here is given. Raises ValueError where quotes do not close."""
    words = shlex.split(addopts) if isinstance(addopts, str) else addopts
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in NAMES:
        parser.add_argument(f"--npubench-{name}", dest=name)
    try:
        return vars(parser.parse_known_args([*words, *shlex.split(os.environ.get("PYTEST_ADDOPTS", ""))])[0])
    except argparse.ArgumentError as error:
        raise ValueError(f"addopts: {error}") from None


def short_path(path: Path) -> Path:
    """Returns the path as a command in this folder takes it: the shorter one of both its forms."""
    return min(Path(os.path.relpath(path)), path, key=lambda form: len(str(form)))
