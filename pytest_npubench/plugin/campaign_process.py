"""A campaign in a child process: it opens the device, and nobody else does.

libtpu keeps its lock until the process that loaded it ends, JAX keeps most of a GPU, torch and JAX share none: a run
that opens no device itself can always measure again, end what hangs, and outlive a device that is lost. The child is
another pytest with the run's own options, which collects the campaign's tests, measures, and hands each record over
before the next round begins (campaign_child.py is its side). The journal is written here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import pytest

from pytest_npubench.backends.protocol import Device
from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.progress import Progress
from pytest_npubench.campaign.protocol import CampaignPlan
from pytest_npubench.errors import UnitLostError
from pytest_npubench.plugin.fresh_process import fresh_command, fresh_environment
from pytest_npubench.plugin.options import CHILD
from pytest_npubench.plugin.settings import REMEASURING, Settings
from pytest_npubench.processes.child import Child, Ends
from pytest_npubench.processes.lifeline import named_error
from pytest_npubench.store.fingerprint import Fingerprint

GRACE_S = 10.0
START_S = 600.0
POLL_S = 1.0


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

    def command(ends: Ends) -> tuple[Sequence[str], Mapping[str, str]]:
        variables = {**task.environment, CHILD: json.dumps(dict(ends)), **({REMEASURING: "1"} if task.again else {})}
        options = {"--npubench-journal": settings.journal}
        return fresh_command(config, task.tests, options), fresh_environment(**variables)

    child = Child(command, name=f"the process of {task.campaign}", grace_s=GRACE_S, folder=config.invocation_params.dir)
    try:
        child.send(task)
        measured = _listen(child, task, heard, settings.stall_timeout)
        child.wait(GRACE_S)
        return measured
    finally:
        child.close(grace_s=0.0)


def _listen(child: Child, task: CampaignTask, heard: Heard, silence_s: float) -> Measured:
    patience_s: float | None = START_S
    while True:
        kind, *values = _next(child, patience_s)
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
            continue
        _hand_on(kind, values, heard)
        if kind == "record":
            child.send("ok")


def _hand_on(kind: str, values: Sequence[Any], heard: Heard) -> None:
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


def _next(child: Child, patience_s: float | None) -> tuple[Any, ...]:
    """The next message. Waits in short turns, so that an interrupt is heard at once."""
    started_s = monotonic()
    while not child.has_message(POLL_S):
        if patience_s is not None and monotonic() - started_s > patience_s:
            raise child.hung(patience_s)
    message = child.receive(None)
    if not isinstance(message, tuple) or not message:
        raise UnitLostError(f"{child.name} sent {message!r}; want a message")
    return message
