"""Two fake accelerators, `near` and `far`, on one night of a script; what is true tonight stands in $SCRIPTED_NIGHT.

A campaign of batch size 4 runs on a second stack of the same device, as torch's campaigns run beside jax's. The log of
a time is that of fake_device.py, plus what was planted, plus normal deviations of the night, of the case on that night
and of the process. They are drawn by names: a night played twice is the same night. Tests copy this file into their
projects.
"""

from __future__ import annotations

import json
import math
import os
import random
import resource
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_device
import pytest

from pytest_npubench.backends.protocol import Device, Probe, Stack
from pytest_npubench.core.measurement import Phase, Request, Run
from pytest_npubench.plugin import selection
from pytest_npubench.processes import CHILD
from pytest_npubench.suites.buckets import reference_buckets
from pytest_npubench.suites.buckets.plan import BucketPlan

VARIABLE = "SCRIPTED_NIGHT"
DEVICES = ("near", "far")
SECOND_STACK_BATCH = 4
CALLS_BEFORE_DEATH = 20
TESTS_BEFORE_FULL = 6
ROOM_BYTES = 1500


class ScriptedBackend(fake_device.FakeBackend):
    """Both devices; each campaign opens one of them, by the framework that its batch size stands for."""

    def __init__(self, night: Mapping[str, Any]) -> None:
        super().__init__(fake_device.Faults(sleep_s=float(os.environ.get("FAKE_SLEEP_S", "0"))))
        self.night = night

    def probe(self, timeout_s: float) -> Probe:
        return Probe(
            devices=tuple(
                Device(family=self.family, ordinal=ordinal, name=f"{fake_device.NAME} {name}")
                for ordinal, name in enumerate(DEVICES)
            )
        )

    def open(self, devices: Sequence[Device], cache_dir: str | None) -> ScriptedRuntime:
        return self._open(devices, "fake runtime")

    def open_torch(self, devices: Sequence[Device]) -> ScriptedRuntime:
        return self._open(devices, "second runtime")

    def _open(self, devices: Sequence[Device], runtime: str) -> ScriptedRuntime:
        name = devices[0].name.rpartition(" ")[2]
        if name in self.night["lost"]:
            raise RuntimeError("the device fell off the bus")
        faults = replace(self.faults, driver=self.night["drivers"][name], throttled=name in self.night["hot"])
        return ScriptedRuntime(devices, faults, night=self.night, name=name, runtime=runtime)


class ScriptedRuntime(fake_device.FakeRuntime):
    """One device, `name`, open tonight."""

    def __init__(
        self,
        devices: Sequence[Device],
        faults: fake_device.Faults,
        *,
        night: Mapping[str, Any],
        name: str,
        runtime: str,
    ) -> None:
        super().__init__(devices, faults)
        self.night, self.name, self.runtime = night, name, runtime

    def stack(self) -> Stack:
        return replace(super().stack(), device_class=self.devices[0].name, runtime=self.runtime)


class ScriptedEngine(fake_device.FakeEngine):
    """Its times are tonight's; its process may be killed in the middle."""

    runtime: ScriptedRuntime
    num_calls = 0

    def run(self, requests: Sequence[Request]) -> Run:
        self.num_calls += 1
        if self._campaign in self.runtime.night["dies"] and self.num_calls > CALLS_BEFORE_DEATH:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().run(requests)

    @property
    def _campaign(self) -> str:
        return f"{self.runtime.name}-b{self.batch_size}"

    def _of_process(self, phase: Phase, bucket: int) -> float:
        night, case = self.runtime.night, f"{self._campaign}-bucket{bucket}"
        noise = night["noise"]
        shift = (
            noise["night"] * self._normal(self.runtime.name)
            + noise["case"] * self._normal(case, phase.value)
            + noise["process"] * self._normal(case, phase.value, str(self._number))
        )
        return float(night["factors"].get(case, 1.0) * math.exp(shift))

    def _normal(self, *names: str) -> float:
        night = self.runtime.night
        return random.Random("/".join((str(night["seed"]), str(night["number"]), night["runner"], *names))).gauss(0, 1)


def install() -> ScriptedBackend:
    """The backend to offer through pytest_npubench_backends."""
    night = json.loads(os.environ[VARIABLE])
    fake_device.install()
    reference_buckets.static_bucket_engine = lambda runtime, plan: ScriptedEngine(
        runtime, plan.buckets, plan.batch_size
    )
    BucketPlan.framework = property(lambda plan: "torch" if plan.batch_size == SECOND_STACK_BATCH else "jax")
    selection.torch_missing = lambda family: ""  # the second stack is torch's by name alone
    return ScriptedBackend(night)


class FullDisk:
    """A plugin: no file of the run's own process may grow much beyond the journal's size, some tests after its start.

    What limits it is RLIMIT_FSIZE: the journal's next write fails as on a full disk, with another error number.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.num_tests = config, 0

    def pytest_runtest_logfinish(self) -> None:
        self.num_tests += 1
        if self.num_tests == TESTS_BEFORE_FULL:
            size = Path(self.config.getoption("--npubench-journal")).stat().st_size
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + ROOM_BYTES, resource.RLIM_INFINITY))


def pytest_configure(config: pytest.Config) -> None:
    """For the project's conftest.py."""
    if CHILD not in os.environ and json.loads(os.environ[VARIABLE])["disk_full"]:
        config.pluginmanager.register(FullDisk(config))
