"""Two runs write one journal, one set of baselines and one history at once, and one of them is killed."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from plugin.project import Project

from .conftest import PUBLISHED, RUN, Rehearsed
from .endings import check_accepted_once, check_cases, check_history_is_the_journal
from .invariants import check_all, journal_bytes, latest_cases
from .kills import SEED, Kill, at_point, generator, soak_from, timed
from .processes import fork

# nowhere in particular; amid a line that the other appends behind; holding the baselines' lock; amid a transaction
WHERE = (None, "append journal", "sync baseline", "sql insert")
NUM_KILLS = 2 * len(WHERE)
NUM_KILLS_ON_ONE_DEVICE = 3


@pytest.fixture(scope="module")
def two_devices(rehearsed: Rehearsed, tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    """Today's project with two devices, of which each run takes one."""
    project = rehearsed.copy(tmp_path_factory.mktemp("two") / "project")
    path = project.root / "conftest.py"
    path.write_text(path.read_text().replace("num_devices=1", "num_devices=2"))
    return Rehearsed(**{**vars(rehearsed), "yesterday": project})


def _run(device: int) -> tuple[str, ...]:
    return (*RUN, *PUBLISHED, "--npubench-devices", str(device), "--npubench-report", f"report-{device}.html")


@pytest.mark.parametrize("number", soak_from(len(WHERE), range(NUM_KILLS)))
def test_the_other_run_ends_as_if_alone(two_devices: Rehearsed, tmp_path: Path, number: int):
    project = two_devices.copy(tmp_path / "project")
    draw = generator("two", number)
    kill = _drawn(two_devices, draw, WHERE[number % len(WHERE)])
    victim = draw.randrange(2)
    sys.stdout.write(f"seed {SEED}: run {victim} killed {kill}\n")
    runs = [
        fork(project, _run(device), kill.point if device == victim else None, name=f"{device}-") for device in range(2)
    ]
    if kill.after_s is not None:
        time.sleep(max(0.0, runs[victim].started_s + kill.after_s - time.monotonic()))
        runs[victim].kill()
    assert runs[victim].wait() in (0, -signal.SIGKILL), runs[victim].said()
    assert runs[1 - victim].wait() == 0, runs[1 - victim].said()
    check_all(project, b"")
    assert two_devices.cases.keys() <= _measured_on(project, 1 - victim).keys()
    before = journal_bytes(project)
    resumed = fork(project, (*_run(victim), "--npubench-resume"))
    assert resumed.wait() == 0, resumed.said()
    check_all(project, before)
    check_cases(project, two_devices.cases)
    assert _measured_on(project, victim).keys() == _measured_on(project, 1 - victim).keys()
    check_history_is_the_journal(project)
    check_accepted_once(project)


def _drawn(rehearsed: Rehearsed, draw: random.Random, where: str | None) -> Kill:
    return timed(draw, rehearsed.duration_s) if where is None else at_point(draw, {where: rehearsed.points[where]}, 0)


@pytest.mark.parametrize("number", soak_from(1, range(NUM_KILLS_ON_ONE_DEVICE)))
def test_a_run_that_waits_for_the_device_gets_it(rehearsed: Rehearsed, tmp_path: Path, number: int):
    project = rehearsed.copy(tmp_path / "project")
    draw = generator("waiting", number)
    waiting = (*RUN, *PUBLISHED, "--npubench-lock-timeout", "60")  # the device is free for a moment between campaigns
    first = fork(project, waiting, name="first-")
    while b'"record":"compile"' not in journal_bytes(project):
        assert first.is_running(), first.said()
        time.sleep(0.001)
    second = fork(project, waiting)
    time.sleep(draw.uniform(0, rehearsed.duration_s / 2))
    first.kill()
    first.wait()
    assert second.wait() == 0, second.said()
    check_all(project, b"")
    check_cases(project, rehearsed.cases)
    check_history_is_the_journal(project)
    check_accepted_once(project)


def _measured_on(project: Project, device: int) -> Mapping[str, Any]:
    """Case key -> its latest record on a device."""
    records = latest_cases(project.journal().records)
    return {case: record for (case, _, name), record in records.items() if name == f"openvino:{device}"}
