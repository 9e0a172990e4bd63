"""A night with a slow case, killed while a fresh process measures its suspect again, with that process or alone."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from plugin.project import Project

from .conftest import RUN, Rehearsed
from .endings import begin_another_day
from .invariants import check_all, journal_bytes
from .kills import SEED, generator, soak_from
from .processes import Started, fork

SLOW = """num_devices=1, alter=lambda requests, run: dataclasses.replace(run, e2e_s=1.2 * run.e2e_s)
        if len(requests) == 2 and run.segments[0].bucket == 32 else run"""
NIGHT = (*RUN, "-k", "fake-mini and profile", "--npubench-accept", "--npubench-remeasure", "1")
SLOW_CASE = "buckets/profile/fake-mini-llama-b2-bucket32"
KINDS = {"buckets/profile/fake-mini-llama-b2-bucket16": "unchanged", SLOW_CASE: "regressed"}
LONGEST_S = 0.5  # about what a fresh process still does once it has its engine


@pytest.fixture(scope="module")
def slow(rehearsed: Rehearsed, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Seven accepted nights, and a device that has become slower."""
    project = rehearsed.copy(tmp_path_factory.mktemp("slow") / "project")
    for _ in range(6):
        run = fork(project, NIGHT)
        assert run.wait() == 0, run.said()
        begin_another_day(project)
    path = project.root / "conftest.py"
    path.write_text(path.read_text().replace("num_devices=1", SLOW))
    return project


def _killed_again(project: Project, names: tuple[object, ...], *, with_child: bool) -> None:
    before = len(project.engines())
    started = fork(project, NIGHT)
    while "again" not in project.engines()[before:]:
        assert started.is_running(), started.said()
        time.sleep(0.001)
    kill_s = generator(*names).uniform(0, LONGEST_S)
    sys.stdout.write(f"seed {SEED}: killed {kill_s:.3f} s after a fresh process began\n")
    time.sleep(kill_s)
    if with_child:
        started.kill()
    else:
        started.process.kill()
    started.wait()


def _check_ending(project: Project, run: Started) -> None:
    """The slow case is found slow, so the night accepts the other one alone."""
    assert run.wait() == 1, run.said()
    check_all(project, b"")
    assert {case: record["verdict"]["kind"] for case, record in project.cases().items()} == KINDS


@pytest.mark.parametrize("number", soak_from(1, range(3)))
def test_killed_with_the_fresh_process(slow: Project, tmp_path: Path, number: int):
    project = slow.copy(tmp_path / "project")
    _killed_again(project, ("again", number), with_child=True)
    check_all(project, b"")
    before = journal_bytes(project)
    _check_ending(project, fork(project, (*NIGHT, "--npubench-resume")))
    assert journal_bytes(project).startswith(before)


def test_the_fresh_process_that_is_left_over_lets_go_of_the_device(slow: Project, tmp_path: Path):
    project = slow.copy(tmp_path / "project")
    _killed_again(project, ("left over",), with_child=False)
    _check_ending(project, fork(project, (*NIGHT, "--npubench-resume", "--npubench-lock-timeout", "60")))
