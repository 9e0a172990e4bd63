"""A project with two days behind it: yesterday's run, accepted and uploaded, and today's, rehearsed on a copy."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from plugin.project import Project, make_project

from .invariants import HISTORY, OLD_JOURNAL, REPORT, check_all, files, journal_bytes
from .processes import Started, fork, fresh, passed_points

# no wait for a device: one that a killed run still held would make every case invalid
RUN = ("pytest", "-k", "fake and not canary", "--npubench-lock-timeout", "0")
PUBLISHED = ("--npubench-accept", "--npubench-history", HISTORY, "--npubench-report", REPORT)


@dataclass(frozen=True)
class Rehearsed:
    """What a run that nobody kills does and leaves: its cases, kill points passed, records written, seconds."""

    yesterday: Project
    cases: Mapping[str, Mapping[str, Any]]
    points: Mapping[str, int]
    num_records: Mapping[str, int]
    files: frozenset[str]
    duration_s: float
    resumed_duration_s: float
    fresh_duration_s: float

    def copy(self, root: Path) -> Project:
        """The project as today's run finds it, in a folder of its own."""
        return self.yesterday.copy(root)

    def left_s(self, project: Project) -> float:
        """About how long the next run takes: rounds that the journal holds are not measured again."""
        share = min(1.0, journal_bytes(project).count(b'"record":"round"') / self.num_records["round"])
        return self.duration_s + share * (self.resumed_duration_s - self.duration_s)


@pytest.fixture(scope="session")
def rehearsed(tmp_path_factory: pytest.TempPathFactory) -> Rehearsed:
    yesterday = make_project(tmp_path_factory.mktemp("yesterday"))
    rounds = {"min_rounds": 3, "max_rounds": 3}
    yesterday.fake("noise=0.01, num_devices=1", buckets=[16, 32], **rounds)
    # a second campaign, and a second baseline file
    fake = {"family": "openvino", "classes": ["npu"], "match": "^Fake accelerator$"}
    yesterday.hardware("fake-large", buckets=[32, 64], **fake, **rounds)
    fresh_duration_s = _timed(fresh(yesterday, (*RUN, *PUBLISHED)))
    yesterday.journal_path.rename(yesterday.root / OLD_JOURNAL)

    today = yesterday.copy(tmp_path_factory.mktemp("today") / "project")
    _timed(fork(today, ("npubench", "--help")))  # the stem has started
    duration_s = _timed(fork(today, (*RUN, *PUBLISHED)))
    check_all(today, b"")
    points, left = passed_points(today), frozenset(files(today))
    kinds = ["session", *(record["record"] for record in today.journal().records)]
    return Rehearsed(
        yesterday=yesterday,
        cases=today.cases(),
        points=points,
        num_records={kind: kinds.count(kind) for kind in kinds},
        files=left,
        duration_s=duration_s,
        resumed_duration_s=_timed(fork(today, (*RUN, *PUBLISHED, "--npubench-resume"))),
        fresh_duration_s=fresh_duration_s,
    )


def _timed(started: Started) -> float:
    status = started.wait()
    assert status == 0, started.said()
    return time.monotonic() - started.started_s
