"""What a serving run must tell for its metrics: the records of its requests and the columns of its iterations.

`serving.loop.ServingResult` does; anything else of this form, such as a run read from a file, does as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics.record import RequestRecord
from pytest_npubench.stats.checks import FloatArray


class IterationColumns(Protocol):
    """One entry an iteration, as IterationPlan and IterationOutcome have it (pytest_npubench.serving.iteration).

    num_prefill_layers: layers in which some prompt ran. kv_bytes and hidden_bytes: held when the iteration ended.
    energy_j: None, or NaN, where nothing told it.
    """

    @property
    def start_s(self) -> Sequence[float]: ...
    @property
    def end_s(self) -> Sequence[float]: ...
    @property
    def num_decode(self) -> Sequence[int]: ...
    @property
    def num_prefill_tokens(self) -> Sequence[int]: ...
    @property
    def num_prefill_layers(self) -> Sequence[int]: ...
    @property
    def expert_activations(self) -> Sequence[int]: ...
    @property
    def padded_expert_activations(self) -> Sequence[int]: ...
    @property
    def expert_load_bytes(self) -> Sequence[int]: ...
    @property
    def kv_bytes(self) -> Sequence[int]: ...
    @property
    def hidden_bytes(self) -> Sequence[int]: ...
    @property
    def energy_j(self) -> Sequence[float | None]: ...


class ServedRun(Protocol):
    """Records of every ARRIVED request in order of arrival, the iterations' log, the clock's name ("wall" or
    "virtual"), and when the run started and ended, in seconds."""

    @property
    def records(self) -> Sequence[RequestRecord]: ...
    @property
    def log(self) -> IterationColumns: ...
    @property
    def clock(self) -> str: ...
    @property
    def started_s(self) -> float: ...
    @property
    def ended_s(self) -> float: ...
    @property
    def num_layers(self) -> int: ...


def column(name: str, values: Sequence[float]) -> FloatArray:
    """A column as floats, [num_iterations]. Raises MeasurementError for an entry that is negative or not finite."""
    array = np.asarray(values, dtype=np.float64)
    good = np.isfinite(array) & (array >= 0)
    if not good.all():
        index = int(np.argmin(good))
        raise MeasurementError(f"{name} of iteration {index} is {array[index]}; want a finite number >= 0")
    return array
