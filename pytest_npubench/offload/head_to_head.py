"""Which figures may be compared: those measured on one stack, and no others.

llm.npu compares its own measurements with figures printed in another paper; a review calls that unsound. So a figure
carries where it comes from: `measured` under a fingerprint (device, runtime and their versions), or `reported` in a
paper. A ratio exists between two measured figures of one fingerprint; everything else raises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pytest_npubench.errors import MeasurementError, NotComparableError

Origin = Literal["measured", "reported"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure and where it comes from: source is the fingerprint's key where it was measured, the place in the paper
    where it is reported. Raises MeasurementError for a value that is not finite and for a source that is empty."""

    name: str
    value: float
    unit: str
    origin: Origin
    source: str

    def __post_init__(self) -> None:
        if not math.isfinite(self.value) or not self.source:
            raise MeasurementError(f"{self.name}: {self.value!r} from {self.source!r}; want a number and its source")

    @property
    def label(self) -> str:
        """For a table: "1.2 s", "29.7 % (reported: section 3.3)"."""
        text = f"{self.value:g} {self.unit}".strip()
        return text if self.origin == "measured" else f"{text} (reported: {self.source})"


def ratio(figure: Figure, other: Figure) -> float:
    """figure / other. Raises NotComparableError where one of them is reported, their fingerprints or units differ, and
    MeasurementError where the other is 0."""
    for each in (figure, other):
        if each.origin != "measured":
            raise NotComparableError(
                f"{each.name} is reported ({each.source}); reported figures are shown, not compared"
            )
    if figure.source != other.source:
        raise NotComparableError(
            f"{figure.name} was measured under {figure.source}, {other.name} under {other.source}; "
            "want one fingerprint for both"
        )
    if figure.unit != other.unit:
        raise NotComparableError(f"{figure.name} is in {figure.unit!r}, {other.name} in {other.unit!r}")
    if other.value == 0:
        raise MeasurementError(f"{other.name} is 0; a ratio to it has no meaning")
    return figure.value / other.value
