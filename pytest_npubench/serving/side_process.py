"""One side of a ProcessPair in its process: `python -m pytest_npubench.serving.side_process JSON`.

{"kv_fd": ..., "cores": [...] or null}, then one message with the side and the factory of its executor. Commands come
from the owner, what has run goes back, until the owner closes its end. A thread of the decode process receives what
comes over the pipe from the prefill process while an iteration runs, so that handing over does not stop decoding; the
keys and values are put in place between two iterations.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Collection
from multiprocessing.connection import Connection
from typing import Any

from pytest_npubench.core.clock import monotonic
from pytest_npubench.errors import ConfigError, DeviceError, DeviceUnavailableError, MeasurementError
from pytest_npubench.processes.owner import Owner
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.two_devices import HandoverExecutor, ServingSide


def main() -> None:
    arguments = json.loads(sys.argv[1])
    owner = Owner()
    side, factory = owner.receive()
    try:
        if arguments["cores"] is not None:
            _pin(side, arguments["cores"])
        _Served(side, factory(), owner, Connection(arguments["kv_fd"])).run()
    except (ConfigError, DeviceError, MeasurementError) as error:
        owner.answer_error(error)
    except (EOFError, ConnectionError):
        pass  # the owner has gone, or the other process, which the owner will tell
    except Exception as error:  # noqa: BLE001 - whatever a library raises reaches the case by name
        owner.answer_error(DeviceError(f"the {side.value} process: {type(error).__name__}: {error}"))


def _pin(side: ServingSide, cores: Collection[int]) -> None:
    """Raises DeviceUnavailableError where the system cannot pin, or does not lend these processors."""
    try:
        os.sched_setaffinity(0, cores)
    except (AttributeError, OSError) as error:
        raise DeviceUnavailableError(
            f"the {side.value} process cannot be pinned to processors {sorted(cores)}: {error}"
        ) from None


class _Served:
    """An executor behind the socket to its owner."""

    def __init__(
        self, side: ServingSide, executor: HandoverExecutor, owner: Owner, kv_pipe: Connection[Any, Any]
    ) -> None:
        self._executor = executor
        self._owner = owner
        self._kv_pipe = kv_pipe
        self._sending = threading.Lock()
        self._arrived: dict[int, object] = {}
        self._reply("ready", (executor.num_layers, executor.kv_capacity_tokens, executor.block_size_tokens))
        if side is ServingSide.DECODE:
            threading.Thread(target=self._receive_kv, daemon=True).start()

    def run(self) -> None:
        """Raises EOFError once the owner has closed its end."""
        commands: dict[str, Callable[..., None]] = {
            "begin": self._executor.begin,
            "run": self._run,
            "export": self._export,
            "import": self._import,
            "end": self._executor.end,
        }
        while True:
            name, *arguments = self._owner.receive()
            commands[name](*arguments)

    def _run(self, plan: IterationPlan) -> None:
        start_s = monotonic()
        outcome = self._executor.run(plan)
        self._reply("ran", outcome, start_s, monotonic())

    def _export(self, request: int) -> None:
        self._kv_pipe.send((request, *self._executor.export_kv(request)))

    def _import(self, request: int, prompt_tokens: int, output_tokens: int) -> None:
        self._executor.begin(request, prompt_tokens, output_tokens)
        self._executor.import_kv(request, self._arrived.pop(request))

    def _receive_kv(self) -> None:
        while True:
            try:
                request, num_bytes, kv = self._kv_pipe.recv()
            except (EOFError, OSError):
                return  # the prefill process has stopped, or was killed while it sent
            self._arrived[request] = kv
            self._reply("arrived", num_bytes, monotonic())

    def _reply(self, *message: object) -> None:
        with self._sending:
            self._owner.send(*message)


if __name__ == "__main__":
    main()
