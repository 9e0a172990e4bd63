"""The dynamic unit, in a process of its own that OffloadPair starts: torch on one thread, pinned to one core.

It owns the arena and the static unit's process.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_npubench.extensions.pairs.offload.experiments import experiment, name_of
from pytest_npubench.extensions.pairs.offload.units import Figures, TechniqueBench, Units
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.cores import pin_to
from pytest_npubench.extensions.pairs.partition.units.torch_unit import import_torch
from pytest_npubench.extensions.pairs.partition.units.xla_worker import XlaWorker


class OffloadHost:
    """arguments: `cores`, the dynamic unit's and the static one's; `spare_cores`, those of neither. The methods raise
    whatever the experiment raises."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        dynamic_core, self._static_core = arguments["cores"]
        pin_to(dynamic_core)
        import_torch()
        self._arena = SharedArena()
        self._spare_cores = tuple(arguments["spare_cores"])
        self._bench: TechniqueBench | None = None

    def open(self, settings: object) -> None:
        chosen = experiment(name_of(settings))
        worker = XlaWorker(core=self._static_core, arena=self._arena, kernels=chosen.kernels)
        self._bench = chosen.bench(settings, Units(self._arena, worker, self._spare_cores))

    def load(self) -> None:
        self._opened.load()

    def measure(self, name: str) -> Figures:
        return self._opened.measure(name)

    @property
    def _opened(self) -> TechniqueBench:
        assert self._bench is not None, "open comes first"
        return self._bench
