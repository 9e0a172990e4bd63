"""A campaign in a child process: it opens the device, and nobody else does.

libtpu keeps its lock until the process that loaded it ends, JAX keeps most of a GPU, torch and JAX share none: a run
that opens no device itself can always measure again, end what hangs, and outlive a device that is lost. The child is
another pytest with the run's own options, which collects the campaign's tests, measures, and hands each record over
before the next round begins (campaign_child.py is its side). The journal is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.protocol import CampaignPlan, Progress
from pytest_npubench.plugin.fresh_process import fresh_command, fresh_environment
from pytest_npubench.plugin.settings import REMEASURING, Settings
from pytest_npubench.processes.child import Child, named_error
from pytest_npubench.store.fingerprint import Fingerprint

END_S = 10.0
START_S = 600.0
KINDS = ("waiting", "locked", "record", "note", "stage", "round", "samples")


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignTask:
    """What a child is to measure: the campaign of that key with these cases, on these devices.

    `tests` are the test functions that have the cases, with absolute paths. `environment` makes the devices the only
    ones that are seen; empty where all are. `again`: suspects are measured once more, for at least `at_least_s`, and
    nothing earlier counts. Without cases the child tells the fingerprint alone.
    """

    campaign: str
    cases: frozenset[str]
    tests: tuple[str, ...]
    devices: tuple[Device, ...]
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
    progress: Progress
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
    if kind == "record":
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
