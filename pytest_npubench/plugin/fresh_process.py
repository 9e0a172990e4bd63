"""A fresh pytest process with a run's configuration, options of the command line and some of its tests.

A process that measures a test again has a temporary folder with a lock file. The kernel releases the lock of a killed
process, so a later run removes every folder whose lock is free.

run_campaign measures a campaign in a child process, which alone opens the device: libtpu keeps its lock until the
process that loaded it ends, JAX keeps most of a GPU, torch and JAX share none. So the run can measure again, end what
hangs, and outlive a device that is lost. The child is another pytest, which collects the campaign's tests, measures,
and hands each record over before the next round begins (campaign_child.py is its side). The journal is written here.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPlan
from pytest_npubench.plugin.items import is_shipped
from pytest_npubench.plugin.options import OPTIONS
from pytest_npubench.plugin.progress import CaseProgress
from pytest_npubench.plugin.settings import REMEASURING, Settings
from pytest_npubench.processes.child import Child, named_error
from pytest_npubench.store.fingerprint import Fingerprint
from pytest_npubench.store.journal_format import RUN

PREFIX, OWNER = "npubench-again-", "owner.lock"
COOLDOWN_S = 2.0  # before a suspect is measured again
# told anew, or none of the fresh process's business: a history's address may hold a password
OF_THE_RUN = frozenset({"journal", "devices", "history"})
END_S = 10.0
START_S = 600.0
KINDS = ("waiting", "locked", "record", "note", "stage", "round", "samples")


def fresh_command(config: pytest.Config, tests: Sequence[str], options: Mapping[str, object]) -> list[str]:
    """The command of a pytest run with the same options; `tests` are named as items.runs_again does."""
    given = [
        option.argument(config.getoption(option.key))
        for option in OPTIONS
        if option.name not in OF_THE_RUN and config.getoption(option.key) is not None
    ]
    asked = [f"{flag}={value}" for flag, value in {"--rootdir": config.rootpath, **options}.items()]
    if config.inipath is not None:
        asked.append(f"--config-file={config.inipath}")
    plugins = [text for name in config.option.plugins for text in ("-p", name)]
    overrides = [text for pair in config.option.override_ini or () for text in ("-o", pair)]
    if any(map(is_shipped, tests)):
        asked.append("--pyargs")
    if config.pluginmanager.hasplugin("xdist"):
        asked.append("-n0")
    if config.pluginmanager.hasplugin("benchmark") and not config.getoption("benchmark_only", False):
        asked.append("--benchmark-disable")
    if config.pluginmanager.hasplugin("_cov"):
        asked.append("--no-cov")  # a tracer would be measured too
    if config.pluginmanager.hasplugin("terminalreporter"):
        asked.append("-q")
    # assertions are not rewritten, which takes as long as importing everything
    return [sys.executable, "-m", "pytest", "--assert=plain", *plugins, *overrides, *given, *asked, *tests]


def fresh_environment(**variables: str) -> dict[str, str]:
    """This process's environment without what pytest says of it and its run, and with these variables."""
    private = ("PYTEST_XDIST", "PYTEST_CURRENT_TEST", RUN)
    return {name: value for name, value in os.environ.items() if not name.startswith(private)} | variables


@contextmanager
def again_folder() -> Iterator[Path]:
    """A new folder, ours as long as this lasts."""
    from filelock import FileLock  # 45 ms to import, which a run that measures nothing again need not pay

    with tempfile.TemporaryDirectory(prefix=PREFIX) as name, FileLock(Path(name) / OWNER):
        yield Path(name)


def remove_left_over() -> None:
    """The folders whose owner is gone. One without a lock file, or another user's, is left alone.

    Everybody may put something into a temporary folder under such a name: what is a link, or open to others, is none
    of ours.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if _is_ours(folder) and (folder / OWNER).is_file() and _is_free(folder / OWNER):
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _is_free(path: Path) -> bool:
    from filelock import FileLock, Timeout

    try:
        with FileLock(path, timeout=0):
            return True
    except (Timeout, OSError):
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignTask:
    """What a child is to measure: the campaign of that key with these cases, on these devices.

    `tests` are the test functions that have the cases, with absolute paths. `environment` makes the devices the only
    ones that are seen; empty where all are. `locked`: those that no other run may have meanwhile. `again`: suspects are
    measured once more, for at least `at_least_s`, and nothing earlier counts. Without cases the child tells the
    fingerprint alone.
    """

    campaign: str
    cases: frozenset[str]
    tests: tuple[str, ...]
    devices: tuple[Device, ...]
    locked: tuple[Device, ...]
    framework: str
    environment: Mapping[str, str] = field(default_factory=dict)
    lock_timeout_s: float
    at_least_s: float = 0.0
    resume: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Where a child's messages go, by what they are about. A fingerprint is answered with the calibrations, by
    workload, that the campaign's cases are held to on that stack."""

    fingerprint: Callable[[Fingerprint], Mapping[str, Any]]
    record: Callable[[Mapping[str, object]], None]
    note: Callable[[str], None]
    progress: CaseProgress
    plan: CampaignPlan


def run_campaign(config: pytest.Config, settings: Settings, task: CampaignTask, heard: Heard) -> Measured:
    """Measure a task's campaign in a child and return what came of it.

    Raises the child's own error, such as DeviceBusyError; UnitLostError where it dies, or is silent for longer than
    --npubench-stall-timeout. What it measured before is on record then.
    """

    child = Child(
        fresh_command(config, task.tests, {"--npubench-journal": settings.journal}),
        name=f"the process of {task.campaign}",
        environment=fresh_environment(**task.environment, **({REMEASURING: "1"} if task.again else {})),
        timeout_s=START_S,
        folder=config.invocation_params.dir,
    )
    try:
        child.send(task)
        measured = _listen(child, task, heard, settings.stall_timeout)
        child.wait(END_S)
        return measured
    finally:
        child.close()


def _listen(child: Child, task: CampaignTask, heard: Heard, silence_s: float) -> Measured:
    patience_s: float | None = START_S
    while True:
        kind, *values = child.receive(patience_s)
        if kind == "measured":
            measured: Measured = values[0]
            return measured
        if kind == "error":
            raise named_error(*values)
        if kind == "waiting":
            patience_s = None if task.lock_timeout_s < 0 else START_S + task.lock_timeout_s
        else:
            patience_s = None if silence_s < 0 else silence_s
        if kind == "fingerprint":
            child.send(heard.fingerprint(values[0]))
        elif not _hand_on(kind, values, heard):
            raise child.garbled(f"{kind!r}, which is no message")
        if kind == "record":
            child.send("ok")


def _hand_on(kind: str, values: Sequence[Any], heard: Heard) -> bool:
    """Whether it is of a kind that is known."""
    if kind == "waiting" and values:
        heard.progress.waits(heard.plan.key, values[0])
    elif kind == "record":
        heard.record(values[0])
    elif kind == "note":
        heard.note(values[0])
    elif kind == "stage":
        heard.progress.stage(heard.plan.key, values[0])
    elif kind == "round":
        heard.progress.begin_round(heard.plan, *values)
    elif kind == "samples":
        for _ in range(values[0]):
            heard.progress.sample()
    return kind in KINDS
