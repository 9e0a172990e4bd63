"""LENS from graphs: TTFT_b is the mean time of the prefill graph of bucket b, TBT_b that of its decode graph.

LENS fits both from end-to-end runs (arXiv 2606.18042, Eq. 14 and 15); here each is measured alone. What lies between
the graphs of a real run (sampling, copies of the cache, the host) is in neither, so predictions are lower bounds.

Worked number: prefill graph 40 ms, decode graph 2 ms, 59 steps in one bucket: 40 + 59 * 2 = 158 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, variance
from typing import TYPE_CHECKING

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.measurement import Phase
from pytest_npubench.extensions.compilers.suites.graphs.phone_plan import MAIN_UNIT, GraphPoint, GraphVisit, PhonePlan
from pytest_npubench.suites.buckets.points import BucketPoint
from pytest_npubench.verdict.result import GateKind

if TYPE_CHECKING:
    from pytest_npubench.predictors.profile import BucketProfile, BucketTiming, PointError


def bucket_profile(plan: PhonePlan, measured: Measured, buckets: Sequence[int], unit: str) -> BucketProfile:
    """Returns the profile of one unit. Raises MeasurementError with the reason where one of its jobs failed."""
    from pytest_npubench.predictors.profile import BucketProfile

    return BucketProfile(
        buckets={bucket: _timing(measured, bucket, unit) for bucket in buckets}, batch_size=plan.batch_size
    )


def predict_batch(profile: BucketProfile, batch: BucketPoint) -> float:
    """Returns seconds of one drawn batch, rows that ended carried along frozen as in the reference decoder."""
    from pytest_npubench.predictors.lens import LensPredictor

    lengths = [(item.input_tokens, item.output_tokens) for item in batch.requests]
    return LensPredictor(profile).predict_batch(lengths, finished="freeze").e2e_s


def graph_times(measured: Measured, phase: Phase, bucket: int, unit: str) -> tuple[float, ...]:
    """Returns seconds of every run of a graph. Raises MeasurementError with the reason where its job failed."""
    rounds = measured.visits(GraphPoint(phase=phase, bucket=bucket, unit=unit).name, GraphVisit)
    return tuple(seconds for visits in rounds for visit in visits for seconds in visit.times_s)


def _timing(measured: Measured, bucket: int, unit: str) -> BucketTiming:
    from pytest_npubench.predictors.profile import BucketTiming

    ttft, tbt = (graph_times(measured, phase, bucket, unit) for phase in (Phase.PREFILL, Phase.DECODE))
    have_spread = len(ttft) > 1 and len(tbt) > 1
    return BucketTiming(
        ttft_s=fmean(ttft), tbt_s=fmean(tbt), errors=(_error(ttft, 1, 0), _error(tbt, 0, 1)) if have_spread else ()
    )


def _error(times_s: Sequence[float], ttft_weight: float, tbt_weight: float) -> PointError:
    from pytest_npubench.predictors.profile import PointError

    return PointError(
        variance_s2=variance(times_s) / len(times_s),
        num_samples=len(times_s),
        ttft_weight=ttft_weight,
        tbt_weight=tbt_weight,
    )


def latest(measured: Measured, phase: Phase, bucket: int, unit: str) -> GraphVisit:
    return measured.visits(GraphPoint(phase=phase, bucket=bucket, unit=unit).name, GraphVisit)[-1][-1]


def gate_of(measured: Measured, bucket: int) -> GateKind:
    """What a stand-in of the service made up is never compared."""
    return "none" if latest(measured, Phase.PREFILL, bucket, MAIN_UNIT).stand_in else "ratio"
