"""Wakes a coroutine at a time, to some tens of microseconds: an event loop's own timers are rounded up to milliseconds.

Linux has timers that are files (timerfd_create(2)), which a loop can wait for beside its sockets. Elsewhere the last
SPIN_S are spent giving way to others, which takes all that is left of a core.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import sys
from functools import cache

from pytest_npubench.core.clock import monotonic

SPIN_S = 0.0015
CLOCK_MONOTONIC, TFD_TIMER_ABSTIME = 1, 1  # of <time.h> and <sys/timerfd.h>
_SETTING = struct.Struct("@4l")  # struct itimerspec: an interval, and a time, each of seconds and nanoseconds


class Alarm:
    """An alarm for one coroutine of one running loop. Use it in a `with`."""

    def __enter__(self) -> Alarm:
        self._loop = asyncio.get_running_loop()
        self._rung: asyncio.Future[None] | None = None
        self._file = _new_timer()
        if self._file is not None:
            self._loop.add_reader(self._file, self._ring)
        return self

    def __exit__(self, *raised: object) -> None:
        if self._file is not None:
            self._loop.remove_reader(self._file)
            os.close(self._file)

    async def until(self, due_s: float) -> None:
        """Seconds of time.monotonic(); at once where they are over, and never before."""
        if self._file is None:
            if (wait_s := due_s - monotonic() - SPIN_S) > 0:
                await asyncio.sleep(wait_s)
            while monotonic() < due_s:
                await asyncio.sleep(0)
            return
        while monotonic() < due_s:
            self._rung = self._loop.create_future()
            _set_timer(self._file, due_s)
            await self._rung

    def _ring(self) -> None:
        assert self._file is not None
        os.read(self._file, 8)
        if self._rung is not None and not self._rung.done():
            self._rung.set_result(None)


def _new_timer() -> int | None:
    if sys.platform != "linux":
        return None
    file = _c().timerfd_create(CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
    return file if file >= 0 else None


def _set_timer(file: int, due_s: float) -> None:
    whole_s = int(due_s)
    setting = _SETTING.pack(0, 0, whole_s, int((due_s - whole_s) * 1e9) + 1)
    if _c().timerfd_settime(file, TFD_TIMER_ABSTIME, setting, None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@cache
def _c() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
