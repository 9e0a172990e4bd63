"""The sum of operators, corrected once by a run from end to end, as LLMServingSim 2.0 corrects its own.

    prefill and step of operator_sum.py, each times a factor: what LENS's two points of the middle bucket give over what
    the operators add up to at these lengths

Worked number: operators of 8 ms a prefill and 1.6 ms a step at a bucket that takes 10 ms and 2 ms from end to end: all
prefills and all steps of all buckets count 1.25 times.
"""

from __future__ import annotations

import numpy as np

from pytest_npubench.core.measurement import CostRecord
from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.rivals.operator_sum import Operators, OperatorSum
from pytest_npubench.predictors.protocol import ProfileSamples
from pytest_npubench.predictors.two_point import ProfilePoint, count_cost, fit


class CorrectedOperatorSum(OperatorSum):
    name = "operator_sum_e2e"
    about = "the sum of operators, each phase corrected at one bucket measured end to end (LLMServingSim 2.0)"

    def fit(self, samples: ProfileSamples) -> Operators:
        """Raises MeasurementError where operators were not timed, or the bucket's points are not two."""
        operators = super().fit(samples)
        points = _calibration(samples)
        bucket = points[0].bucket
        profile = fit(
            {point: samples.samples_s[point] for point in points},
            batch_size=samples.batch_size,
            prefill_shared=samples.prefill_shared,
        )
        timing = profile.buckets[bucket]
        if timing.ttft_s is None or timing.tbt_s is None:
            raise MeasurementError(f"bucket {bucket} has no prefill or no decode step to correct by")
        lengths = np.arange(points[0].input_tokens + 1, points[-1].input_tokens + points[-1].output_tokens)
        return operators.corrected(
            prefill_factor=timing.ttft_s / operators.prefills_s([points[0].input_tokens]),
            step_factor=timing.tbt_s * len(lengths) / operators.steps_s(lengths.astype(float)),
        )

    def cost(self, samples: ProfileSamples) -> CostRecord:
        """Operators, and two points of one bucket with its binaries."""
        points = _calibration(samples)
        binaries = [one for one in samples.compiles if one.name.endswith(f"-{points[0].bucket}")]
        operators = {part: samples.parts.of(part) for part in self.parts(samples.buckets)}
        return count_cost(
            [*samples.parts.operator_compiles, *binaries],
            {**operators, **{point: samples.samples_s[point] for point in points}},
            sessions=2,
        )


def _calibration(samples: ProfileSamples) -> list[ProfilePoint]:
    """The points of the middle bucket."""
    bucket = samples.buckets[len(samples.buckets) // 2]
    return sorted(
        (point for point in samples.samples_s if point.bucket == bucket), key=lambda point: point.output_tokens
    )


PREDICTOR = CorrectedOperatorSum()
