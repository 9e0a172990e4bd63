"""Four nights that all tests of this folder look at or go on from."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_npubench.nightly.night import Night
from pytest_npubench.nightly.state import StateFolder

from .runner import Done, Remote, Runner


@dataclass(frozen=True)
class Nights:
    """Four nights on one runner, and what each of them left."""

    remote: Remote
    runner: Runner
    done: tuple[Done, ...]
    journals: tuple[Path, ...]

    def copy(self, root: Path) -> Runner:
        """Another remote and runner just like these, for what happens on the fifth night."""
        shutil.copytree(self.remote.path, root / "origin.git")
        remote = Remote(path=root / "origin.git")
        runner = Runner(remote=remote, root=root / "runner")
        shutil.copytree(self.runner.state.path, runner.state.path)
        return runner


@pytest.fixture(scope="session")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Nights:
    root = tmp_path_factory.mktemp("nights")
    remote = Remote.make(root)
    runner = Runner(remote=remote, root=root / "runner")
    done, journals = [], []
    for number in range(4):
        done.append(runner.night())
        journals.append(shutil.copy(runner.out / "journal.jsonl", root / f"night-{number}.jsonl"))
    return Nights(remote=remote, runner=runner, done=tuple(done), journals=tuple(map(Path, journals)))


@pytest.fixture
def night(tmp_path: Path) -> Night:
    """A night that has begun and done nothing."""
    night = Night(name="tpu", work=tmp_path, out=tmp_path / "out", state=StateFolder(path=tmp_path / "state"))
    night.begin()
    return night
