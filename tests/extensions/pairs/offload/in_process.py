"""A static unit without a process of its own: the same kernels, run on submission. For numbers, not for times."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena


class InProcessUnit:
    def __init__(self, arena: SharedArena, kernels: str) -> None:
        self._arena = arena
        self._kernels = import_module(kernels)
        self._runs: dict[str, Callable[[], object]] = {}
        self._spent_s: tuple[float, ...] = ()

    def build(self, key: str, spec: Mapping[str, object]) -> float:
        began_s = time.perf_counter()
        self._runs[key] = self._kernels.build(spec, self._arena)
        return time.perf_counter() - began_s

    def arm(self, mechanism: str = "flag") -> None:
        """It is always awake."""

    def submit(self, keys: Sequence[str], *, mechanism: str = "flag") -> None:
        spent_s = []
        for key in keys:
            began_s = time.perf_counter()
            self._runs[key]()
            spent_s.append(time.perf_counter() - began_s)
        self._spent_s = tuple(spent_s)

    def wait(self) -> tuple[float, ...]:
        return self._spent_s

    def check(self) -> None:
        """It is there as long as this process is."""
