"""Two Python environments to compare: is the plugin there, what is installed, and what differs.

An environment is asked by its own interpreter from the folder that the runs will be started in, so what it answers is
what a run will import.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_npubench.errors import EnvironmentUnusableError
from pytest_npubench.plain_text import last_line
from pytest_npubench.processes import guarded
from pytest_npubench.store.fingerprint import LIBRARIES

PROBE_TIMEOUT_S = 120
PROBE = """\
import json, platform
from importlib import metadata
versions = {}
for found in metadata.distributions():
    versions.setdefault(found.metadata["Name"], found.version)
plugins = [point.name for point in metadata.entry_points(group="pytest11")]
plugin = None
if "npubench" in plugins:
    import pytest_npubench
    plugin = pytest_npubench.__version__
print(json.dumps({"python": platform.python_version(), "plugin": plugin, "versions": versions}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An interpreter with the versions of all distributions it finds, the plugin's own apart. Its runs start in
    `folder`, the root of what they test; in the current one where that is None."""

    python: Path
    python_version: str
    plugin_version: str
    versions: Mapping[str, str]
    folder: Path | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "python": str(self.python),
            "python_version": self.python_version,
            "plugin_version": self.plugin_version,
            "versions": dict(sorted(self.versions.items())),
        }

    @property
    def facts(self) -> dict[str, str]:
        """Python, plugin, and what compiles, runs or times a kernel before the rest."""
        first = [name for name in LIBRARIES if name in self.versions]
        rest = sorted(self.versions.keys() - {*first, "pytest-npubench"}, key=str.lower)
        facts = {"python": self.python_version, "pytest-npubench": self.plugin_version}
        return facts | {name: self.versions[name] for name in (*first, *rest)}


def environment_differences(old: Environment, new: Environment) -> tuple[str, ...]:
    """ "jaxlib 0.9.2 -> 0.10.2", one a distribution whose version differs or that only one has."""
    before, after = old.facts, new.facts
    names = [*before, *(name for name in after if name not in before)]
    pairs = ((name, before.get(name, "not there"), after.get(name, "not there")) for name in names)
    return tuple(f"{name} {one} -> {other}" for name, one, other in pairs if one != other)


def find_environment(option: str, text: str) -> Environment:
    """Returns the environment of an interpreter, or of a virtual environment's folder, named by a command line option.

    Raises EnvironmentUnusableError where it is none, does not start, or lacks the plugin.
    """
    python = _interpreter(option, text)
    try:
        done = guarded.run([str(python), "-c", PROBE], limit_s=PROBE_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise EnvironmentUnusableError(f"{option} {text}: no answer within {PROBE_TIMEOUT_S} s") from None
    except OSError as error:
        raise EnvironmentUnusableError(f"{option} {text}: {error.strerror}") from error
    if done.returncode:
        raise EnvironmentUnusableError(f"{option} {text}: {last_line(done.stderr, f'exit {done.returncode}')}")
    return _environment(f"{option} {text}", python, done.stdout)


def _environment(option: str, python: Path, output: str) -> Environment:
    try:
        answer = json.loads(last_line(output, ""))
        plugin, versions = answer["plugin"], dict(answer["versions"])
        if plugin is None:
            raise EnvironmentUnusableError(
                f"{option}: pytest-npubench is not installed there: {python} -m pip install pytest-npubench"
            )
        return Environment(
            python=python, python_version=str(answer["python"]), plugin_version=str(plugin), versions=versions
        )
    except (ValueError, KeyError, TypeError):
        raise EnvironmentUnusableError(f"{option}: is no Python interpreter: it answered {output[:80]!r}") from None


def _interpreter(option: str, text: str) -> Path:
    """Returns the interpreter's path as it was given, not the target of a link: the path leads to its virtual
    environment."""
    path = Path(text)
    if path.is_dir():
        inside = [path / "bin" / "python", path / "Scripts" / "python.exe"]
        path = next((candidate for candidate in inside if candidate.exists()), path)
        if path.is_dir():
            raise EnvironmentUnusableError(f"{option} {text}: a folder without bin/python; want a virtual environment")
    elif not path.exists() and (command := shutil.which(text)):
        path = Path(command)
    if not path.exists():
        raise EnvironmentUnusableError(f"{option} {text}: not found; want a python or a virtual environment's folder")
    if not os.access(path, os.X_OK):
        raise EnvironmentUnusableError(f"{option} {text}: is not executable; want a python")
    return path.absolute()
