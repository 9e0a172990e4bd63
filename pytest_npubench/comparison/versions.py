"""The versions that a bisection halves: the releases of a package or the commits of a repository, in order, and an
environment of each.

An environment lies over the one that runs this: it installs the version and finds everything else here. A release
brings another version of a distribution that requires it only where the one here does not fit. pip lists and installs,
so its own configuration says from which index; uv, where it is installed, makes the environments.

Commits are those of the first parents from the one end to the other: a merge stands for what it merged. Each has a
worktree, in which pytest starts; a project that can be installed is.

In a folder each version is installed once, and two of them are measured in turn. It has `environments/NAME` and, for
each comparison, `pairs/OLD--NEW` with its journals and logs. Work that was cut off goes on where it was.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Protocol

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from pytest_npubench.comparison.ab_folder import AbFolder, WorkFolder
from pytest_npubench.comparison.ab_run import Terms, compare_in_turn
from pytest_npubench.comparison.environments import Environment, find_environment
from pytest_npubench.comparison.outcome import Comparison
from pytest_npubench.core.documents import toml_table
from pytest_npubench.core.regular_file import SMALL_BYTES, read_text, replace_text
from pytest_npubench.errors import ConfigError, EnvironmentUnusableError
from pytest_npubench.processes import guarded
from pytest_npubench.store.journal import recorded

INSTALL_LIMIT_S = 3600.0
GIT_LIMIT_S = 300.0
NUM_NAMED = 8
NUM_DIGITS = 10
LAYER = "npubench-below.pth"


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


class Versions(Protocol):
    """Versions of one thing, at least two, each by a name that can name a folder."""

    @property
    def what(self) -> str:
        """What has these versions."""

    @property
    def names(self) -> Sequence[str]: ...

    def title(self, name: str) -> str:
        """The version in words."""

    def install(self, name: str, folder: Path) -> None:
        """Puts the version into a new environment in `folder`. Raises EnvironmentUnusableError."""

    def environment(self, name: str, folder: Path) -> Environment:
        """The environment that was installed. Raises EnvironmentUnusableError."""

    def remove(self, folder: Path) -> None:
        """Takes the environment away, as far as it is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Releases:
    """The releases of a distribution."""

    package: str
    names: tuple[str, ...]

    @property
    def what(self) -> str:
        return self.package

    @classmethod
    def between(cls, package: str, good: str, bad: str) -> Releases:
        """Raises ConfigError where the index does not have the package or an end."""
        ends = [_version(text) for text in (good, bad)]
        pre = ["--pre"] if any(end.is_prerelease for end in ends) else []
        listed = _run([*_pip(), "index", "versions", *pre, package], f"the releases of {package}")
        released = re.search(r"^Available versions: (.+)$", listed, re.MULTILINE)
        names = sorted(re.split(r",\s*", released[1]) if released else (), key=Version)
        first, last = (_position(package, end, names) for end in ends)
        if first == last:
            raise ConfigError(f"--package {package} {good}..{bad}: want two releases")
        span = names[min(first, last) : max(first, last) + 1]
        return cls(package=package, names=tuple(span if first < last else reversed(span)))

    def title(self, name: str) -> str:
        return f"{self.package} {name}"

    def install(self, name: str, folder: Path) -> None:
        requirements = [f"{self.package}=={name}", *_dependents(self.package)]
        _pip_install(lay_over(folder), *requirements)

    def environment(self, name: str, folder: Path) -> Environment:
        return find_environment(self.title(name), str(folder))

    def remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commits:
    """The commits of the repository whose top folder is `top`."""

    top: Path
    names: tuple[str, ...]

    @property
    def what(self) -> str:
        return str(self.top)

    @classmethod
    def pair(cls, good: str, bad: str) -> Commits:
        """Two commits. Raises ConfigError where there are no such."""
        top = Path(_run(["git", "rev-parse", "--show-toplevel"], "--commits").strip())
        if top != Path.cwd().resolve():
            raise ConfigError(f"--commits: want to be started in the repository's top folder, {top}")
        asked = ("rev-parse", "--verify", "--end-of-options")
        ends = (_git(top, *asked, f"{end}^{{commit}}").strip()[:NUM_DIGITS] for end in (good, bad))
        return cls(top=top, names=tuple(ends))

    @classmethod
    def between(cls, good: str, bad: str) -> Commits:
        """Two commits and what is between them. Raises ConfigError as `pair`, and where one does not follow the
        other."""
        ends = cls.pair(good, bad)
        first, last = ends.names
        listed = _git(ends.top, "rev-list", "--first-parent", "--reverse", f"{first}..{last}").split()
        if not listed or not _git(ends.top, "merge-base", first, last).startswith(first):
            raise ConfigError(f"--commits {good}..{bad}: want a commit and one that follows it")
        return replace(ends, names=(first, *(commit[:NUM_DIGITS] for commit in listed)))

    def title(self, name: str) -> str:
        return _git(self.top, "log", "-1", "--format=%h (%s)", f"--abbrev={NUM_DIGITS}", name).strip()

    def install(self, name: str, folder: Path) -> None:
        self.remove(folder)
        python = lay_over(folder)
        tree = _tree(folder)
        _git(self.top, "worktree", "add", "--quiet", "--detach", "--force", str(tree), name)
        if _can_be_installed(tree):
            _pip_install(python, str(tree))

    def environment(self, name: str, folder: Path) -> Environment:
        return replace(find_environment(f"commit {name}", str(folder)), folder=_tree(folder))

    def remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        _git(self.top, "worktree", "prune")


def lay_over(folder: Path) -> Path:
    """Makes a virtual environment, in the place of what is in the folder, that finds all distributions of the running
    one behind its own. Returns its python. Raises EnvironmentUnusableError."""
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv")
    made_by = [uv, "venv", "--quiet", "--no-project", "--python"] if uv else []
    _run(
        [*made_by, sys.executable, *([] if uv else ["-m", "venv", "--without-pip"]), str(folder)],
        f"environment {folder}",
    )
    python = folder / "bin" / "python"
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(_run([str(python), "-I", "-c", asked], f"environment {folder}").strip())
    below = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    lines = [f"import site; site.addsitedir({path!r})\n" for path in below]
    replace_text(packages / LAYER, "".join(lines))
    return python


def _tree(folder: Path) -> Path:
    """A commit's worktree, beside what installs it."""
    return folder / "worktree"


def _can_be_installed(tree: Path) -> bool:
    """Whether there is a project to install and not code that is imported where it lies."""
    try:
        table = toml_table(read_text(tree / "pyproject.toml", SMALL_BYTES))
    except (OSError, ValueError):
        table = {}
    return (tree / "setup.py").exists() or not table.keys().isdisjoint({"project", "build-system"})


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise ConfigError(f"--package: {text!r} is no version; want such as 0.9.2..0.10.2") from None


def _position(package: str, end: Version, names: Sequence[str]) -> int:
    for index, name in enumerate(names):
        if Version(name) == end:
            return index
    nearest = sorted(names, key=lambda name: Version(name) > end)[-NUM_NAMED:]
    raise ConfigError(f"{package} {end} is not released for this Python; there are {', '.join(nearest) or 'none'}")


def _dependents(package: str) -> list[str]:
    """The distributions here that require this one, or others that do."""
    requires = {
        canonicalize_name(distribution.metadata["Name"]): set(_required(distribution.requires or ()))
        for distribution in metadata.distributions()
    }
    asked, dependents = {canonicalize_name(package)}, set[str]()
    while asked:
        asked = {name for name, needs in requires.items() if needs & asked} - dependents
        dependents |= asked
    return sorted(dependents - {canonicalize_name(package)})


def _required(lines: Sequence[str]) -> list[str]:
    requirements = map(Requirement, lines)
    return [
        canonicalize_name(requirement.name)
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]


def _pip() -> list[str]:
    """The pip of the running environment, or uv's. Raises EnvironmentUnusableError without either."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "tool", "run", "pip"]
    raise EnvironmentUnusableError(f"neither pip nor uv is installed: {sys.executable} -m ensurepip")


def _pip_install(python: Path, *requirements: str) -> None:
    command = [*_pip(), "--python", str(python), "install", "--quiet", "--no-input", *requirements]
    _run(command, requirements[-1] if requirements[-1].startswith("/") else requirements[0])


def _git(top: Path, *arguments: str) -> str:
    return _run(["git", "-C", str(top), *arguments], f"git {arguments[0]}", GIT_LIMIT_S)


def _run(command: Sequence[str], what: str, limit_s: float = INSTALL_LIMIT_S) -> str:
    """What the command prints. Raises EnvironmentUnusableError with its last words where it fails."""
    try:
        done = guarded.run(command, limit_s=limit_s)
    except subprocess.TimeoutExpired:
        raise EnvironmentUnusableError(f"{what}: no end within {limit_s:g} s") from None
    except OSError as error:
        raise EnvironmentUnusableError(f"{what}: {command[0]}: {error.strerror}") from error
    if done.returncode:
        raise EnvironmentUnusableError(f"{what}: {_reason(done.stderr) or f'exit status {done.returncode}'}")
    return done.stdout


def _reason(printed: str) -> str:
    """The last error that a command printed, or its last line. pip indents the errors of a build, and its own that
    follow say only that there was one."""
    lines = [line for line in printed.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"\s*(error|fatal)\b", line, re.IGNORECASE)]
    of_builds = [line for line in errors if line[0].isspace()]
    return (of_builds or errors or lines or [""])[-1].strip()
