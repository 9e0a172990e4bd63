"""`npubench history upload` and `npubench baseline accept`, killed at a moment or at one of their kill points."""

from __future__ import annotations

import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from plugin.project import Project

from pytest_npubench.store.baselines import Baselines

from .conftest import RUN, Rehearsed
from .invariants import HISTORY, check_all, journal_bytes
from .kills import SEED, Kill, at_point, generator, killed, timed
from .processes import fork, passed_points

JOURNAL = ".npubench/journal.jsonl"
MAX_TRIES = 50


def stored_rows(project: Project) -> list[str]:
    """The whole database as statements, in no order."""
    with closing(sqlite3.connect(project.root / HISTORY)) as database:
        return sorted(database.iterdump())


def accepted_sessions(project: Project) -> list[Any]:
    """All that baselines hold, but for when it was accepted."""
    return sorted(
        (str(file.relative_path), case, entry.digest, session.session, str(session.metrics), session.anchor)
        for file in Baselines.load(project.root / "baselines").files
        for case, entry in file.cases.items()
        for session in entry.sessions
    )


@dataclass(frozen=True)
class Command:
    arguments: tuple[str, ...]
    stored: Callable[[Project], Any]
    folder: str
    """Where it stores: kills alternate between one that is there and one that has to be made."""


COMMANDS = {
    "upload": Command(("npubench", "history", "upload", JOURNAL, "--history", HISTORY), stored_rows, HISTORY),
    "accept": Command(("npubench", "baseline", "accept", JOURNAL), accepted_sessions, "baselines"),
}


@pytest.fixture(scope="module")
def measured(rehearsed: Rehearsed, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with two sessions more in its journal, neither accepted nor uploaded."""
    project = rehearsed.copy(tmp_path_factory.mktemp("measured") / "project")
    for _ in range(2):
        run = fork(project, RUN)
        assert run.wait() == 0, run.said()
    return project


@pytest.mark.parametrize("is_new", [False, True], ids=["again", "new"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_leaves_all_whole_and_can_be_repeated(
    measured: Project, tmp_path: Path, name: str, is_new: bool, is_soak: bool
):
    command = COMMANDS[name]
    start = measured.copy(tmp_path / "start")
    if is_new:
        path = start.root / command.folder
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    done = start.copy(tmp_path / "done")
    began_s = time.monotonic()
    whole = fork(done, command.arguments)
    assert whole.wait() == 0, whole.said()
    duration_s = time.monotonic() - began_s
    draw = generator(name, is_new)
    for number in range(10 if is_soak else 3):
        for attempt in range(MAX_TRIES):
            project = start.copy(tmp_path / f"{number}-{attempt}")
            at_moment = number % 2 or attempt
            kill: Kill = timed(draw, duration_s) if at_moment else at_point(draw, passed_points(done), number // 2)
            sys.stdout.write(f"seed {SEED}, kill {number}: {kill}\n")
            has_met = killed(project, command.arguments, kill)
            check_all(project, journal_bytes(start))
            if has_met:
                break
        again = fork(project, command.arguments)
        assert again.wait() == 0, again.said()
        check_all(project, journal_bytes(start))
        assert command.stored(project) == command.stored(done)
