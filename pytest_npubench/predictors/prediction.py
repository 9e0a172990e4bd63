"""What a predictor returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Seconds = TypeVar("Seconds", float, npt.NDArray[np.float64])


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Generic[Seconds]):
    """Predicted latency in seconds: floats for one request or batch, arrays of one shape for many requests.

    e2e_s = prefill_s + decode_s (LENS, Eq. 6 and 11).
    """

    prefill_s: Seconds
    decode_s: Seconds

    @property
    def e2e_s(self) -> Seconds:
        return self.prefill_s + self.decode_s
