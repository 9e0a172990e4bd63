"""The clock of a run: seconds since it started, told by the machine or by the executor's cost model.

Everything that a virtual clock touched says "virtual", so that modelled seconds never pass for measured ones.
"""

from __future__ import annotations

import math
import time
from typing import Protocol

from pytest_npubench.core.clock import monotonic
from pytest_npubench.errors import MeasurementError


class Clock(Protocol):
    """Starts at 0. `advance` takes an iteration's modelled seconds (None on the wall clock) and returns the time."""

    @property
    def name(self) -> str: ...

    def start(self) -> None: ...

    def now_s(self) -> float: ...

    def advance(self, duration_s: float | None) -> float: ...

    def wait_until(self, at_s: float) -> None: ...


SPIN_S = 0.002  # a sleep ends up to a millisecond late, which would be in the TTFT of whoever arrived meanwhile


class WallClock:
    """The machine's monotonic clock. Waiting sleeps, but for the last SPIN_S."""

    name = "wall"

    def __init__(self) -> None:
        self._zero_s = monotonic()

    def start(self) -> None:
        self._zero_s = monotonic()

    def now_s(self) -> float:
        return monotonic() - self._zero_s

    def advance(self, duration_s: float | None) -> float:
        """Raises MeasurementError for modelled seconds: they belong on a virtual clock."""
        if duration_s is not None:
            raise MeasurementError(f"an iteration of {duration_s} modelled seconds on the wall clock")
        return self.now_s()

    def wait_until(self, at_s: float) -> None:
        while (left_s := at_s - self.now_s()) > 0:
            if left_s > SPIN_S:
                time.sleep(left_s - SPIN_S)


class VirtualClock:
    """Moves by what the executor says an iteration takes, and jumps to the next arrival when nothing runs."""

    name = "virtual"

    def __init__(self) -> None:
        self._now_s = 0.0

    def start(self) -> None:
        self._now_s = 0.0

    def now_s(self) -> float:
        return self._now_s

    def advance(self, duration_s: float | None) -> float:
        """Raises MeasurementError for seconds that are missing, negative or not finite."""
        if duration_s is None or not 0 <= duration_s < math.inf:
            raise MeasurementError(
                f"an iteration took {duration_s} s; want a finite number of at least 0 on a virtual clock"
            )
        self._now_s += duration_s
        return self._now_s

    def wait_until(self, at_s: float) -> None:
        if at_s > self._now_s:
            self._now_s = at_s
