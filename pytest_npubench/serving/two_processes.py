"""Two executors on the wall clock, each in a process of its own, with a pipe from the prefill to the decode process.

The parent plans; each child runs one command after the other. A thread of the decode process receives what comes over
the pipe while an iteration runs, so that handing over does not stop decoding; the keys and values are put in place
between two iterations. Iterations are timed in the child, on the machine's monotonic clock, which all processes share.
Nothing is in shared memory, so that a process that is killed leaves nothing behind.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any

from pytest_npubench.errors import ConfigError, DeviceError, DeviceUnavailableError, MeasurementError
from pytest_npubench.iteration import IterationPlan
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.two_devices import HandedOver, HandoverExecutor, Ran, Side

ExecutorFactory = Callable[[], HandoverExecutor]
Cores = Collection[int]

STOP_S = 5.0


class ProcessPair:
    """A context manager; the processes live inside it. Factories must be picklable: functions of a module, or partials.

    `cores` pins the prefill and the decode process to processors of their own. Entering raises what a factory raised of
    MeasurementError, DeviceError and ConfigError, DeviceUnavailableError where a process cannot be pinned, and
    DeviceError where one raised anything else or ended by itself. However it ends, no process is left.
    """

    clock = "wall"

    def __init__(
        self, prefill: ExecutorFactory, decode: ExecutorFactory, *, cores: tuple[Cores, Cores] | None = None
    ) -> None:
        self._factories = {Side.PREFILL: prefill, Side.DECODE: decode}
        self._cores = dict(zip(Side, cores, strict=True)) if cores else {}
        self._processes: dict[Side, Any] = {}
        self._pipes: dict[Side, Connection[Any, Any]] = {}
        self._shapes: dict[Side, tuple[int, int, int]] = {}
        self._plans: dict[Side, IterationPlan] = {}
        self._moving: tuple[ServingRequest, float] | None = None
        self._zero_s = 0.0

    def __enter__(self) -> ProcessPair:
        try:
            self._start_processes()
            for side in Side:
                self._shapes[side] = self._receive(side)[1]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """The processes end; one that does not within STOP_S is killed."""
        for side in self._processes:
            with suppress(OSError):  # it may have ended already
                self._pipes[side].send(("stop",))
        for side, process in self._processes.items():
            process.join(timeout=STOP_S)
            if process.is_alive():
                process.kill()
                process.join()
            process.close()
            self._pipes[side].close()
        self._processes = {}

    def _start_processes(self) -> None:
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        with receiver, sender:
            for side, kv_pipe in ((Side.PREFILL, sender), (Side.DECODE, receiver)):
                pipe, child_end = context.Pipe()
                with child_end:
                    arguments = (side, self._factories[side], child_end, kv_pipe, self._cores.get(side))
                    process = context.Process(target=_child, args=arguments, daemon=True)
                    process.start()
                self._pipes[side], self._processes[side] = pipe, process

    def shapes(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        return self._shapes[Side.PREFILL], self._shapes[Side.DECODE]

    def start(self) -> None:
        self._zero_s = time.monotonic()

    def now_s(self) -> float:
        return time.monotonic() - self._zero_s

    def begin(self, request: ServingRequest) -> None:
        self._send(Side.PREFILL, "begin", request.id, request.prompt_tokens, request.output_tokens)

    def run(self, side: Side, plan: IterationPlan) -> None:
        self._plans[side] = plan
        self._send(side, "run", plan)

    def hand_over(self, request: ServingRequest) -> None:
        self._moving = request, self.now_s()
        self._send(Side.PREFILL, "export", request.id)

    def wait(self, until_s: float | None) -> Sequence[Ran | HandedOver]:
        """Raises what an executor raised, and DeviceError where a process ended by itself."""
        timeout_s = None if until_s is None else max(0.0, until_s - self.now_s())
        ready = wait(list(self._pipes.values()), timeout_s)
        return [self._event(side, self._receive(side)) for side, pipe in self._pipes.items() if pipe in ready]

    def end(self, side: Side, request: int) -> None:
        self._send(side, "end", request)

    def _event(self, side: Side, message: tuple[Any, ...]) -> Ran | HandedOver:
        if message[0] == "ran":
            _, outcome, start_s, end_s = message
            return Ran(
                side=side,
                plan=self._plans.pop(side),
                outcome=outcome,
                start_s=start_s - self._zero_s,
                end_s=end_s - self._zero_s,
            )
        assert self._moving is not None
        (request, start_s), (_, num_bytes, end_s) = self._moving, message
        self._moving = None
        self._send(Side.DECODE, "import", request.id, request.prompt_tokens, request.output_tokens)
        self._send(Side.PREFILL, "end", request.id)
        return HandedOver(request=request, num_bytes=num_bytes, start_s=start_s, end_s=end_s - self._zero_s)

    def _send(self, side: Side, *command: object) -> None:
        try:
            self._pipes[side].send(command)
        except OSError:
            raise self._ended(side) from None

    def _receive(self, side: Side) -> tuple[Any, ...]:
        try:
            message: tuple[Any, ...] = self._pipes[side].recv()
        except (EOFError, OSError):
            raise self._ended(side) from None
        if message[0] == "error":
            raise message[1]
        return message

    def _ended(self, side: Side) -> DeviceError:
        """Names the one that failed: a process that finds the other one gone ends too, with exit code 0."""
        for which in (side, *(other for other in Side if other is not side)):
            self._processes[which].join(timeout=STOP_S)
            if code := self._processes[which].exitcode:
                how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                return DeviceError(f"the {which.value} process ended by itself, {how}")
        return DeviceError(f"the {side.value} process ended by itself")


def _child(
    side: Side, factory: ExecutorFactory, pipe: Connection[Any, Any], kv_pipe: Connection[Any, Any], cores: Cores | None
) -> None:
    """One side's process: commands in, what has run out, until told to stop or the parent has gone."""
    threading.Thread(target=_end_with_parent, daemon=True, name="lifeline").start()
    try:
        if cores is not None:
            _pin(side, cores)
        _Served(side, factory(), pipe, kv_pipe).run()
    except (ConfigError, DeviceError, MeasurementError) as error:
        pipe.send(("error", error))
    except (EOFError, ConnectionError):
        pass  # the parent has gone, or the other process, which the parent will tell
    except Exception as error:  # noqa: BLE001 - whatever a library raises reaches the case by name
        pipe.send(("error", DeviceError(f"the {side.value} process: {type(error).__name__}: {error}")))


def _end_with_parent() -> None:
    """The pipe that says so is heard between two commands only, and an iteration may be long."""
    parent = multiprocessing.parent_process()
    assert parent is not None  # multiprocessing started this process
    parent.join()
    os._exit(0)


def _pin(side: Side, cores: Cores) -> None:
    """Raises DeviceUnavailableError where the system cannot pin, or does not lend these processors."""
    try:
        os.sched_setaffinity(0, cores)
    except (AttributeError, OSError) as error:
        raise DeviceUnavailableError(
            f"the {side.value} process cannot be pinned to processors {sorted(cores)}: {error}"
        ) from None


class _Served:
    """An executor behind a pipe."""

    def __init__(
        self, side: Side, executor: HandoverExecutor, pipe: Connection[Any, Any], kv_pipe: Connection[Any, Any]
    ) -> None:
        self._executor = executor
        self._pipe = pipe
        self._kv_pipe = kv_pipe
        self._sending = threading.Lock()
        self._arrived: dict[int, object] = {}
        self._reply("ready", (executor.num_layers, executor.kv_capacity_tokens, executor.block_size_tokens))
        if side is Side.DECODE:
            threading.Thread(target=self._receive_kv, daemon=True).start()

    def run(self) -> None:
        commands: dict[str, Callable[..., None]] = {
            "begin": self._executor.begin,
            "run": self._run,
            "export": self._export,
            "import": self._import,
            "end": self._executor.end,
        }
        while (command := self._pipe.recv())[0] != "stop":
            commands[command[0]](*command[1:])

    def _run(self, plan: IterationPlan) -> None:
        start_s = time.monotonic()
        outcome = self._executor.run(plan)
        self._reply("ran", outcome, start_s, time.monotonic())

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
            self._reply("arrived", num_bytes, time.monotonic())

    def _reply(self, *message: object) -> None:
        with self._sending:
            self._pipe.send(message)
