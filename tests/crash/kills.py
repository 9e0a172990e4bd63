"""When to kill: at a moment drawn uniformly, once a watched thing was seen on the disk, or at a kill point inside.

A plan is drawn from a seeded generator, so a seed repeats which kills are tried; where exactly a kill from outside
lands is the scheduler's doing. NPUBENCH_CRASH_SEED takes another seed.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from plugin.project import Project

from .invariants import HISTORY, REPORT, journal_bytes
from .kill_points import KillPoint
from .processes import Started, fork, fresh

SEED = os.environ.get("NPUBENCH_CRASH_SEED", "1")
LATEST = 1.05  # of the duration of a run that nobody kills
POLL_S = 0.0003
FILES = {
    "temporary baseline": "baselines/*/.*.tmp",
    "baseline": "baselines/*/*.json",
    "write-ahead log": f"{HISTORY}-wal",
    "history": HISTORY,
    "report": REPORT,
}
# of ten kills; half of them know nothing of what the process is doing
TURNS = ("timed", "timed", "point", "timed", "watched", "fresh", "point", "timed", "watched", "point")


@dataclass(frozen=True)
class Kill:
    """One way to kill; exactly one of the three is given. `watched` is a kind of record with how many of it, or a
    name of FILES with 0."""

    after_s: float | None = None
    is_fresh: bool = False
    watched: tuple[str, int] | None = None
    point: KillPoint | None = None

    def __str__(self) -> str:
        if self.after_s is not None:
            return f"{self.after_s:.3f} s after the {'fresh ' if self.is_fresh else ''}start"
        return f"seen: {self.watched}" if self.watched else f"at {self.point}"


def generator(*names: object) -> random.Random:
    return random.Random("/".join(map(str, (SEED, *names))))


def soak_from(first: int, numbers: range) -> list[Any]:
    """Parameters of which those before `first` are killed in a quick run of the tests too."""
    return [pytest.param(number, marks=[pytest.mark.soak] if number >= first else []) for number in numbers]


def timed(draw: random.Random, duration_s: float, *, is_fresh: bool = False) -> Kill:
    return Kill(after_s=draw.uniform(0, LATEST * duration_s), is_fresh=is_fresh)


def at_point(draw: random.Random, points: Mapping[str, int], turn: int) -> Kill:
    """The kinds take turns, so each is met; which one of its kind is drawn."""
    kind = sorted(points)[turn % len(points)]
    return Kill(point=KillPoint(kind, draw.randint(1, points[kind]), draw.random()))


def watching(draw: random.Random, num_records: Mapping[str, int], turn: int) -> Kill:
    """Right after a record, or after a file was made or changed."""
    kinds = [*sorted(num_records), *FILES]
    kind = kinds[turn % len(kinds)]
    return Kill(watched=(kind, draw.randint(1, num_records[kind]) if kind in num_records else 0))


def killed(project: Project, command: Sequence[str], kill: Kill) -> bool:
    """Run the command and kill it; False where it came to its end before, which has to be a good one."""
    seen, begin = None, 0
    if kill.watched is not None:
        seen, begin = _state(project, kill.watched[0]), len(journal_bytes(project))
    started = (fresh if kill.is_fresh else fork)(project, command, **({} if kill.is_fresh else {"point": kill.point}))
    if kill.after_s is not None:
        time.sleep(max(0.0, started.started_s + kill.after_s - time.monotonic()))
        started.kill()
    elif kill.watched is not None:
        _watch(project, started, kill.watched, seen, begin)
    status = started.wait()
    assert status in (0, -signal.SIGKILL), f"exit status {status}: {started.said()}"
    return status != 0


def last_kind(project: Project, before: bytes) -> str:
    """The kind of the last record that a killed process wrote."""
    kinds = list(_num_records(project, len(before[: before.rfind(b"\n") + 1])))
    return kinds[-1] if kinds else "nothing"


def _watch(project: Project, started: Started, watched: tuple[str, int], seen: object, begin: int) -> None:
    """Kill it once the file differs from what was seen, or there are so many records more behind that byte."""
    kind, number = watched
    while started.is_running():
        if kind in FILES:
            is_there = _state(project, kind) != seen
        else:
            is_there = journal_bytes(project)[begin:].count(b'{"record":"%b"' % kind.encode()) >= number
        if is_there:
            started.kill()
            return
        time.sleep(POLL_S)


def _state(project: Project, name: str) -> object:
    """What is watched of one of FILES: names, sizes and times of change."""
    found = []
    for path in project.root.glob(FILES[name]) if name in FILES else ():
        with suppress(FileNotFoundError):  # renamed meanwhile
            status = path.stat()
            found.append((path.name, status.st_size, status.st_mtime_ns, status.st_ino))
    return sorted(found)


def _num_records(project: Project, begin: int = 0) -> dict[str, int]:
    """Kind -> how many records there are from that byte on; the kind of the last one stands last."""
    lines = journal_bytes(project)[begin:].split(b"\n")[:-1]
    kinds = [line[11 : line.index(b'"', 11)].decode() for line in lines]
    return {kind: kinds.count(kind) for kind in reversed(dict.fromkeys(reversed(kinds)))}
