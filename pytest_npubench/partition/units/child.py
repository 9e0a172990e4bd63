"""Compute units live in child processes, each on a core of its own (processes/child.py says how they live and end)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.processes.child import Child, Ends

GRACE_S = 2.0
START_S = 120.0


class ChildProcess(Child):
    """Runs MODULE in a process of its own. `arguments`: JSON values; `fds` stay open there under their numbers."""

    def __init__(
        self, module: str, arguments: Mapping[str, object], *, name: str, fds: Sequence[int] = (), timeout_s: float
    ) -> None:
        def command(ends: Ends) -> tuple[Sequence[str], Mapping[str, str]]:
            handed = {**arguments, **ends, "name": name}
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            return [sys.executable, "-m", module, json.dumps(handed)], environment

        super().__init__(command, name=name, grace_s=GRACE_S, fds=fds)
        self.timeout_s = timeout_s

    def call(self, *message: object, timeout_s: float | None = None) -> Any:
        return super().call(*message, timeout_s=self.timeout_s if timeout_s is None else timeout_s)

    def answer(self, timeout_s: float | None = None) -> Any:
        return super().answer(self.timeout_s if timeout_s is None else timeout_s)

    def started(self) -> Any:
        """The first answer; starting an interpreter with jax or torch may take longer than the work it is for."""
        return self.answer(max(self.timeout_s, START_S))

    def check(self) -> None:
        """Raises UnitLostError where the child is no more."""
        if not self.is_open:
            raise self.lost()


def pin_to(core: int) -> None:
    """Keep this process on one core. Raises DeviceUnavailableError where the system does not let it."""
    try:
        os.sched_setaffinity(0, {core})
    except (OSError, AttributeError) as error:
        raise DeviceUnavailableError(f"cannot pin process {os.getpid()} to core {core}: {error}") from None


def two_cores(cores: tuple[int, int] | None = None) -> tuple[int, int]:
    """The cores for two units: those asked for, else the last two this process may use (the first ones serve the
    system's interrupts). Raises DeviceUnavailableError where there are fewer than two."""
    if not hasattr(os, "sched_getaffinity"):
        raise DeviceUnavailableError(
            f"a pair of units pins its processes to cores, which {sys.platform} does not offer"
        )
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise DeviceUnavailableError(f"a pair of units needs 2 cores; this process may use {len(usable)} ({usable})")
    if cores is None:
        return usable[-2], usable[-1]
    if len(set(cores)) < 2 or not set(cores) <= set(usable):
        raise DeviceUnavailableError(f"cores {cores}: want two different ones of {usable}")
    return cores
