"""pytest-xdist on a host with several devices: all cases of one device go to one worker, so that no two workers share
a device and each campaign is measured once. Everything else is spread as `-n` always does.

A suite's case names its hardware file first and, where there are several devices, its device last:
test_profile[nvidia-h200-llama-3.2-1b-b1-bucket128@3]. Workers beyond the number of devices get other tests or none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadScheduling, LoadScopeScheduling

DEVICE_NUMBER = re.compile(r"@(\d+)\]$")
Families = Mapping[str, str]


class DeviceScheduling:
    """xdist's usual `-n` until the workers have said which tests there are; then by device where ours are among them.

    `families` tells the family of each hardware name, and is asked only once there is a test that may be ours.
    """

    def __init__(self, config: pytest.Config, log: Any, families: Callable[[], Families]) -> None:
        self._config, self._log, self._families = config, log, families
        self._inner: Any = LoadScheduling(config, log)
        self._collections: list[tuple[Any, Sequence[str]]] = []
        self._scheduled = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        self._collections.append((node, collection))
        self._inner.add_node_collection(node, collection)

    def schedule(self) -> None:
        """What xdist calls once all workers have collected, and again for a worker that came later."""
        if not self._scheduled:
            self._scheduled = True
            self._choose()
        self._inner.schedule()

    def _choose(self) -> None:
        ids = self._collections[0][1] if self._collections else ()
        if not any("[" in nodeid for nodeid in ids):
            return
        families = self._families()
        if any(device_of(nodeid, families) for nodeid in ids):
            by_device = _DeviceScheduling(self._config, self._log, families)
            for node in self._inner.nodes:
                by_device.add_node(node)
            for node, collection in self._collections:
                by_device.add_node_collection(node, collection)
            self._inner = by_device


class _DeviceScheduling(LoadScopeScheduling):  # type: ignore[misc, unused-ignore]
    """One unit of work for each device, and one for each other test."""

    def __init__(self, config: pytest.Config, log: Any, families: Families) -> None:
        super().__init__(config, log)
        self._families = families

    def _split_scope(self, nodeid: str) -> str:
        return device_of(nodeid, self._families) or nodeid


def device_of(nodeid: str, families: Families) -> str | None:
    """The device that a suite's case runs on, such as "cuda:3"; None for a test that is no case of a suite."""
    parameters = nodeid.partition("[")[2]
    hardware = [name for name in families if parameters.startswith(f"{name}-")]
    if not hardware:
        return None
    number = DEVICE_NUMBER.search(nodeid)
    return f"{families[max(hardware, key=len)]}:{number[1] if number else 0}"
