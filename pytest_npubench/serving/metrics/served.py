"""What a serving run must tell for its metrics: the records of its requests and the columns of its iterations.

`serving.loop.ServingResult` does; anything else of this form, such as a run read from a file, does as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.log import IterationLog
from pytest_npubench.serving.metrics.record import RequestRecord
from pytest_npubench.stats.checks import FloatArray


class ServedRun(Protocol):
    """Records of every ARRIVED request in order of arrival, the iterations' log, the clock's name ("wall" or
    "virtual"), and when the run started and ended, in seconds."""

    @property
    def records(self) -> Sequence[RequestRecord]: ...
    @property
    def log(self) -> IterationLog: ...
    @property
    def clock(self) -> str: ...
    @property
    def started_s(self) -> float: ...
    @property
    def ended_s(self) -> float: ...
    @property
    def num_layers(self) -> int: ...


def column(name: str, values: Sequence[float]) -> FloatArray:
    """Returns a column as floats, [num_iterations]. Raises MeasurementError for an entry that is negative or not
    finite."""
    array = np.asarray(values, dtype=np.float64)
    good = np.isfinite(array) & (array >= 0)
    if not good.all():
        index = int(np.argmin(good))
        raise MeasurementError(f"{name} of iteration {index} is {array[index]}; want a finite number >= 0")
    return array
