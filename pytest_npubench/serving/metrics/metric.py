"""One figure of a serving run, with its meaning beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pytest_npubench.errors import MeasurementError
from pytest_npubench.verdict.observations import Better

GateKind = Literal["ratio", "difference", "exact", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingMetric:
    """`value` in `unit`, None where it is not known and `note` says why; `definition` is one line of arithmetic.

    `kind` says how it is held against accepted sessions: by ratio, by difference, exactly, or not at all. num_samples
    is what the value rests on, `interval` its 95 % interval in the same unit, None where there is none.

    Raises MeasurementError for a value that is not finite.
    """

    name: str
    unit: str
    value: float | None
    definition: str
    better: Better = "lower"
    kind: GateKind = "ratio"
    num_samples: int = 0
    interval: tuple[float, float] | None = None
    note: str = ""

    def __post_init__(self) -> None:
        assert self.value is not None or self.note, f"{self.name} has neither a value nor a reason"
        if self.value is not None and not math.isfinite(self.value):
            raise MeasurementError(f"{self.name} is {self.value}; want a finite number in {self.unit or 'no unit'}")
