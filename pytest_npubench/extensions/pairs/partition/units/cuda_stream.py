"""One stream of a CUDA device, and how the host waits for what was put on it.

flag       the stream writes a counter into pinned memory after its work; the host polls it
event      an event recorded after the work; its wait blocks the thread
stream     cudaStreamSynchronize
callback   a host function in the stream sets an event of the interpreter
Only the flag returns without the driver; the others are the slow synchronisation.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import UnitLostError
from pytest_npubench.extensions.pairs.partition.units.signals import EVENT, FLAG, poll_word

STREAM, CALLBACK = "stream", "callback"
CUDA_MECHANISMS = (FLAG, EVENT, STREAM, CALLBACK)
_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class CudaStream:
    """`stream`: one that is there, else a new one. Raises UnitLostError where the device fails or a wait takes longer
    than timeout_s."""

    def __init__(self, torch: Any, device: int, timeout_s: float, stream: Any = None) -> None:
        self.torch, self.device = torch, torch.device("cuda", device)
        self.stream = stream or torch.cuda.Stream(self.device)
        self.cache_bytes = int(torch.cuda.get_device_properties(device).L2_cache_size)
        self._timeout_s = timeout_s
        with self.entered():
            self._ticks = torch.zeros(1, dtype=torch.int64, device=self.device)
        self._flag = torch.zeros(1, dtype=torch.int64, pin_memory=True)
        self._word = self._flag.numpy().data
        self._num_told = 0
        self._event = torch.cuda.Event(blocking=True)
        self._called = threading.Event()
        self._function = _HostFunction(lambda _: self._called.set())  # kept: the driver holds its address alone
        self.stream.synchronize()

    def entered(self) -> Any:
        """Context in which torch's work goes to this stream (and its device)."""
        return self.torch.cuda.stream(self.stream)

    def mark(self) -> Any:
        """Returns a timed event at this place of the stream."""
        event = self.torch.cuda.Event(enable_timing=True)
        event.record(self.stream)
        return event

    def tell(self, mechanism: str) -> None:
        """Put the signal behind the work that is on the stream."""
        if mechanism == FLAG:
            self._num_told += 1
            with self.entered():
                self._ticks.add_(1)
                self._flag.copy_(self._ticks, non_blocking=True)
        elif mechanism == EVENT:
            self._event.record(self.stream)
        elif mechanism == CALLBACK:
            self._called.clear()
            _launch_host_function(self.stream.cuda_stream, self._function)

    def wait(self, mechanism: str) -> None:
        """Waits for the last signal."""
        try:
            if mechanism == FLAG:
                self._poll()
            elif mechanism == EVENT:
                self._event.synchronize()
            elif mechanism == STREAM:
                self.stream.synchronize()
            elif not self._called.wait(self._timeout_s):
                raise UnitLostError(f"{self.device} gave no answer within {self._timeout_s:g} s")
        except RuntimeError as error:  # what torch raises for a device that failed
            raise UnitLostError(f"{self.device} was lost: {error}") from None

    def round_trips_s(self, mechanism: str, num_trips: int) -> tuple[float, ...]:
        trips = []
        for _ in range(num_trips):
            began_s = perf_counter()
            self.tell(mechanism)
            self.wait(mechanism)
            trips.append(perf_counter() - began_s)
        return tuple(trips)

    def _poll(self) -> None:
        until_s = perf_counter() + self._timeout_s

        def check() -> None:
            self.stream.query()  # raises where the device failed
            if perf_counter() > until_s:
                raise UnitLostError(f"{self.device} gave no answer within {self._timeout_s:g} s")

        poll_word(self._word, 0, self._num_told, check)


def _launch_host_function(stream: int, function: Any) -> None:
    """torch offers none: cuLaunchHostFunc(CUstream, CUhostFn, void*) of the driver it has loaded."""
    code = ctypes.CDLL("libcuda.so.1").cuLaunchHostFunc(ctypes.c_void_p(stream), function, None)
    if code != 0:
        raise UnitLostError(f"cuLaunchHostFunc failed with CUDA error {code}")
