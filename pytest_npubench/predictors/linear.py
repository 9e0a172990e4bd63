"""The global line: one intercept and two slopes for all lengths, as if nothing were bucketed.

    E2E = a + b * input_tokens + c * output_tokens

by least squares over the profile points. It is the form of MaverIQ that LENS is compared with (arXiv 2606.18042,
section 5: latency linear in token counts, with one TTFT and one TBT slope for a whole data set). Of a batch,
input_tokens are those of all prompts, which are prefilled one by one, and output_tokens those of its longest answer.

Worked number: points (100 in, 1 out) 10 ms, (100, 11) 30 ms, (200, 1) 15 ms give b = 0.05 ms, c = 2 ms, a = 3 ms; a
request of 300 tokens in and 6 out takes 3 + 15 + 12 = 30 ms, whatever buckets it passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from pytest_npubench.core.measurement import Request
from pytest_npubench.errors import MeasurementError
from pytest_npubench.predictors.protocol import Predictor, ProfileSamples

NUM_TERMS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Seconds: at no tokens at all, a prompt token, a token of the longest answer."""

    intercept_s: float
    input_token_s: float
    output_token_s: float

    def predict(self, batch: Sequence[Request]) -> float:
        inputs, longest = sum(item.input_tokens for item in batch), max(item.output_tokens for item in batch)
        return self.intercept_s + self.input_token_s * inputs + self.output_token_s * longest


class Linear(Predictor):
    name = "linear"
    about = "one line through all lengths, without buckets (MaverIQ's form in LENS, arXiv 2606.18042, section 5)"

    def fit(self, samples: ProfileSamples) -> Line:
        """Raises MeasurementError where the points lie on one line of lengths, which leaves slopes open."""
        points = list(samples.samples_s)
        terms = np.array([[1, samples.batch_size * one.input_tokens, one.output_tokens] for one in points], dtype=float)
        if not points or np.linalg.matrix_rank(terms) < NUM_TERMS:
            raise MeasurementError(
                f"{len(points)} profile points tell no line: want two prompt lengths and two output lengths, so two "
                "buckets at least"
            )
        times_s = np.array([fmean(samples.samples_s[one]) for one in points])
        solution, *_ = np.linalg.lstsq(terms, times_s, rcond=None)
        intercept_s, input_token_s, output_token_s = map(float, solution)
        return Line(intercept_s=intercept_s, input_token_s=input_token_s, output_token_s=output_token_s)


PREDICTOR = Linear()
