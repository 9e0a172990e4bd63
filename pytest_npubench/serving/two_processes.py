"""Two executors on the wall clock, each in a process of its own, with a pipe from the prefill to the decode process.

The parent plans; each child runs one command after the other (side_process.py). Iterations are timed in the child, on
the machine's monotonic clock, which all processes share. Nothing is in shared memory, so that a process that is killed
leaves nothing behind.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Collection, Sequence
from multiprocessing.connection import wait
from typing import Any

from pytest_npubench.core.clock import monotonic
from pytest_npubench.errors import UnitLostError
from pytest_npubench.processes.child import END_S, Child, named_error, python_child
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.two_devices import DeviceRun, HandedOver, HandoverExecutor, ServingSide

ExecutorFactory = Callable[[], HandoverExecutor]
Cores = Collection[int]
MESSAGE_S = 120.0  # for the rest of a message whose first byte is here
MODULE = "pytest_npubench.serving.side_process"


class ProcessPair:
    """A context manager; the processes live inside it. Factories must be picklable: functions of a module, or partials.

    `cores` pins the prefill and the decode process to processors of their own. Entering raises what a factory raised of
    MeasurementError, DeviceError and ConfigError, DeviceUnavailableError where a process cannot be pinned,
    DeviceError where one raised anything else, and UnitLostError, one of them, where it ended by itself. However it
    ends, no process is left.
    """

    clock = "wall"

    def __init__(
        self, prefill: ExecutorFactory, decode: ExecutorFactory, *, cores: tuple[Cores, Cores] | None = None
    ) -> None:
        self._factories = {ServingSide.PREFILL: prefill, ServingSide.DECODE: decode}
        self._cores = dict(zip(ServingSide, cores, strict=True)) if cores else {}
        self._children: dict[ServingSide, Child] = {}
        self._shapes: dict[ServingSide, tuple[int, int, int]] = {}
        self._plans: dict[ServingSide, IterationPlan] = {}
        self._moving: tuple[ServingRequest, float] | None = None
        self._zero_s = 0.0

    def __enter__(self) -> ProcessPair:
        try:
            self._start_processes()
            for side in ServingSide:
                self._shapes[side] = self._receive(side)[1]
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        for child in self._children.values():
            child.close()

    def _start_processes(self) -> None:
        receiver, sender = multiprocessing.Pipe(duplex=False)
        with receiver, sender:
            for side, pipe in ((ServingSide.PREFILL, sender), (ServingSide.DECODE, receiver)):
                cores = self._cores.get(side)
                self._children[side] = child = python_child(
                    MODULE,
                    {"kv_fd": pipe.fileno(), "cores": None if cores is None else sorted(cores)},
                    name=f"the {side.value} process",
                    fds=(pipe.fileno(),),
                )
                child.send(side, self._factories[side])

    def shapes(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        return self._shapes[ServingSide.PREFILL], self._shapes[ServingSide.DECODE]

    def start(self) -> None:
        self._zero_s = monotonic()

    def now_s(self) -> float:
        return monotonic() - self._zero_s

    def begin(self, request: ServingRequest) -> None:
        self._send(ServingSide.PREFILL, "begin", request.id, request.prompt_tokens, request.output_tokens)

    def run(self, side: ServingSide, plan: IterationPlan) -> None:
        self._plans[side] = plan
        self._send(side, "run", plan)

    def hand_over(self, request: ServingRequest) -> None:
        self._moving = request, self.now_s()
        self._send(ServingSide.PREFILL, "export", request.id)

    def wait(self, until_s: float | None) -> Sequence[DeviceRun | HandedOver]:
        """Raises what an executor raised, and UnitLostError where a process ended by itself."""
        timeout_s = None if until_s is None else max(0.0, until_s - self.now_s())
        ready = wait([child.fileno() for child in self._children.values()], timeout_s)
        sides = [side for side, child in self._children.items() if child.fileno() in ready]
        return [self._event(side, self._receive(side, MESSAGE_S)) for side in sides]

    def end(self, side: ServingSide, request: int) -> None:
        self._send(side, "end", request)

    def _event(self, side: ServingSide, message: tuple[Any, ...]) -> DeviceRun | HandedOver:
        if message[0] == "ran":
            _, outcome, start_s, end_s = message
            return DeviceRun(
                side=side,
                plan=self._plans.pop(side),
                outcome=outcome,
                start_s=start_s - self._zero_s,
                end_s=end_s - self._zero_s,
            )
        assert self._moving is not None
        (request, start_s), (_, num_bytes, end_s) = self._moving, message
        self._moving = None
        self._send(ServingSide.DECODE, "import", request.id, request.prompt_tokens, request.output_tokens)
        self._send(ServingSide.PREFILL, "end", request.id)
        return HandedOver(request=request, num_bytes=num_bytes, start_s=start_s, end_s=end_s - self._zero_s)

    def _send(self, side: ServingSide, *command: object) -> None:
        try:
            self._children[side].send(*command)
        except UnitLostError as error:
            raise self._failed(side, error) from None

    def _receive(self, side: ServingSide, timeout_s: float | None = None) -> tuple[Any, ...]:
        try:
            message = self._children[side].receive(timeout_s)
        except UnitLostError as error:
            raise self._failed(side, error) from None
        if message[0] == "error":
            raise named_error(*message[1:])
        return message

    def _failed(self, side: ServingSide, error: UnitLostError) -> UnitLostError:
        """Finds the side that failed: a process that finds the other one gone ends too, with exit status 0."""
        (other,) = (child for which, child in self._children.items() if which is not side)
        if self._children[side].wait(0.0) == 0 and other.wait(END_S):
            return other.lost()
        return error
