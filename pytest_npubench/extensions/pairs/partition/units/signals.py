"""How one process tells another that something is done: a flag in shared memory, a pipe, an event.

`flag` is HeteroInfer's fast synchronisation (section 4.3): sleep until shortly before the predicted end, then poll a
word that the other side writes after its data. The last stretch is polled since a sleep is late by some 100 us. `pipe`
and `event` (eventfd) block in the kernel and are woken: the slow synchronisation it is compared with.

Round trips on two cores that others use too: flag p50 1.2 us, p99 2.2 us; pipe and event p50 25 us, p99 above 400 us.
Polling is for cores of one's own: a poller that has used up its time slice waits milliseconds for the next. A flag
inside one process would cost 10 ms: the poller holds the interpreter's lock.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Sequence

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import RegistryError

FLAG, PIPE, EVENT = "flag", "pipe", "event"
MECHANISMS = (FLAG, PIPE, EVENT)
POLLED_S = 200e-6
_SPINS = 512
_SLICE_MS = 100
_barrier = threading.Lock()


def check_mechanism(mechanism: str, among: Sequence[str] = MECHANISMS) -> None:
    if mechanism not in among:
        raise RegistryError(f"no synchronisation {mechanism!r}; there are {', '.join(among)}")


def fence() -> None:
    """Memory barrier: what was written before is seen before what is written after. Two lock round trips, since one
    acquire and one release may swap with what lies outside on a weakly ordered processor."""
    with _barrier:
        pass
    with _barrier:
        pass


def sleep_until(at_s: float) -> None:
    """Sleep until shortly before time.perf_counter() reaches at_s; returns at once where that is near or past."""
    rest_s = at_s - perf_counter() - POLLED_S
    if rest_s > 0:
        time.sleep(rest_s)


def poll_word(words: memoryview, index: int, value: int, check: Callable[[], None]) -> None:
    """Poll until words[index] >= value; `check` runs now and then and may raise."""
    while words[index] < value:
        for _ in range(_SPINS):
            if words[index] >= value:
                break
        else:
            check()
    fence()


class Doorbell:
    """One direction of a blocking mechanism: the ringer's and the waiter's file descriptor."""

    def __init__(self, mechanism: str, fds: tuple[int, int] | None = None) -> None:
        self.mechanism = mechanism
        if fds is None:
            fds = os.pipe() if mechanism == PIPE else (os.eventfd(0),) * 2
        self.waiter_fd, self.ringer_fd = fds
        self._poll = select.poll()
        self._poll.register(self.waiter_fd, select.POLLIN)

    @property
    def fds(self) -> tuple[int, int]:
        return self.waiter_fd, self.ringer_fd

    def ring(self) -> None:
        if self.mechanism == PIPE:
            os.write(self.ringer_fd, b"1")
        else:
            os.eventfd_write(self.ringer_fd, 1)

    def wait(self, check: Callable[[], None]) -> None:
        """Block until it rings; `check` runs a few times a second and may raise."""
        while not self._poll.poll(_SLICE_MS):
            check()
        self.clear()

    def clear(self) -> None:
        os.read(self.waiter_fd, 1 if self.mechanism == PIPE else 8)

    def close(self) -> None:
        for fd in set(self.fds):
            os.close(fd)
