"""A run is killed, resumed and killed again, four times over, and then left to end.

A kill that was drawn too late finds a run that has ended; another day begins then, with nothing to take over.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest
from plugin.project import Project

from .conftest import PUBLISHED, RUN, Rehearsed
from .endings import begin_another_day, check_ending
from .invariants import HISTORY, allowed_leftovers, check_all, files, journal_bytes
from .kills import SEED, TURNS, Kill, at_point, generator, killed, last_kind, soak_from, timed, watching
from .processes import fork

NUM_KILLS = int(os.environ.get("NPUBENCH_CRASH_KILLS", "100"))
KILLS_A_RUN = 4
MAX_TRIES = 20


@pytest.mark.parametrize("first", soak_from(KILLS_A_RUN + 1, range(0, NUM_KILLS, KILLS_A_RUN)))
def test_a_run_killed_again_and_again_ends_with_the_same_cases(rehearsed: Rehearsed, tmp_path: Path, first: int):
    project = rehearsed.copy(tmp_path / "project")
    draw = generator("run", first)
    leftovers = rehearsed.files | allowed_leftovers(rehearsed.files)
    for number in range(first, min(first + KILLS_A_RUN, NUM_KILLS)):
        _kill_once(project, rehearsed, draw, number)
        assert files(project) <= leftovers
    before = journal_bytes(project)
    final = fork(project, _command(project))
    assert final.wait() == 0, final.said()
    check_all(project, before)
    check_ending(project, rehearsed.cases)
    assert not list(project.root.glob(f"{HISTORY}-*"))


def _kill_once(project: Project, rehearsed: Rehearsed, draw: random.Random, number: int) -> None:
    for attempt in range(MAX_TRIES):
        before = journal_bytes(project)
        kill = _drawn(project, rehearsed, draw, number, attempt)
        sys.stdout.write(f"seed {SEED}, kill {number}: {kill}")
        has_met = killed(project, _command(project), kill)
        sys.stdout.write(f"; last record: {last_kind(project, before)}\n" if has_met else "; too late\n")
        check_all(project, before)
        if has_met:
            return
        begin_another_day(project)
    raise AssertionError(f"none of {MAX_TRIES} kills met the run")


def _drawn(project: Project, rehearsed: Rehearsed, draw: random.Random, number: int, attempt: int) -> Kill:
    turn = TURNS[number % len(TURNS)]
    place = sum(TURNS[earlier % len(TURNS)] == turn for earlier in range(number))
    if turn == "point":
        return at_point(draw, rehearsed.points, place)
    if turn == "watched" and attempt < 2:  # what is too short-lived to be seen will be so again
        return watching(draw, rehearsed.num_records, place)
    start_s = rehearsed.fresh_duration_s - rehearsed.duration_s if turn == "fresh" else 0.0
    return timed(draw, start_s + rehearsed.left_s(project), is_fresh=turn == "fresh")


def _command(project: Project) -> tuple[str, ...]:
    """As a user repeats it: there is nothing to resume before there is a journal."""
    resume = ("--npubench-resume",) if project.journal_path.exists() else ()
    return (*RUN, *PUBLISHED, *resume)
