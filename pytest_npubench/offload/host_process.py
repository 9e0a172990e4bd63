"""The dynamic unit's process: torch on one thread, pinned to one core; owns the arena and the static unit's process.

    python -m pytest_npubench.offload.host_process JSON

Started by OffloadPair, ends with it. Messages: ("open", settings), ("load",), ("measure", name).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.offload.experiments import experiment, name_of
from pytest_npubench.offload.units import OffloadBench, Units
from pytest_npubench.partition.units.arena import SharedArena
from pytest_npubench.partition.units.child import pin_to
from pytest_npubench.partition.units.xla_worker import XlaWorker
from pytest_npubench.processes.child import Owner


class OffloadHost:
    def __init__(self, cores: tuple[int, int], spare_cores: tuple[int, ...]) -> None:
        pin_to(cores[0])
        _one_thread()
        self._arena = SharedArena()
        self._static_core = cores[1]
        self._spare_cores = spare_cores
        self._worker: XlaWorker | None = None
        self._bench: OffloadBench | None = None

    def answer(self, request: str, *values: Any) -> object:
        """Raises whatever the experiment raises."""
        if request == "open":
            self._open(values[0])
            return None
        assert self._bench is not None, "open comes first"
        if request == "load":
            self._bench.load()
            return None
        assert request == "measure", request
        return dict(self._bench.measure(values[0]))

    def _open(self, settings: object) -> None:
        found = experiment(name_of(settings))
        self._worker = XlaWorker(core=self._static_core, arena=self._arena, kernels=found.kernels)
        self._bench = found.bench(settings, Units(self._arena, self._worker, self._spare_cores))

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._arena.close()


def _one_thread() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        import torch
    except ImportError as error:
        raise DeviceUnavailableError(f"the dynamic unit needs torch (pytest-npubench[cpu]): {error}") from None
    torch.set_num_threads(1)


def main() -> None:
    arguments: Mapping[str, Any] = json.loads(sys.argv[1])
    owner = Owner(arguments)
    try:
        host = OffloadHost(tuple(arguments["cores"]), tuple(arguments["spare_cores"]))
    except Exception as error:  # noqa: BLE001 (the owner says why the unit did not start)
        owner.answer_error(error)
        return
    owner.answer(None)
    with suppress(EOFError):
        while True:
            message = owner.connection.recv()
            try:
                answer = host.answer(*message)
            except Exception as error:  # noqa: BLE001 (named errors travel, others become MeasurementError)
                owner.answer_error(error)
            else:
                owner.answer(answer)
    host.close()


if __name__ == "__main__":
    main()
