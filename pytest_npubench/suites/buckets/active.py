"""Active profiling: each round repeats the profile points that narrow the band of the workloads' predictions most a
second, until the 90 % bands are within a fraction of what is predicted (stats/allocation.py).

What is predicted of a workload is the sum of its drawn batches without moves of the KV cache. It is linear in the means
of the profile points, with the weights of predictors/band.py. min_rounds rounds visit every point alike, until each has
its least repeats; a round spends at most the seconds on profile points that fixed repeats would.

Worked number: LENS points of 10 and 74 ms with 1 and 33 tokens (batch 1: TTFT 10 ms, TBT 2 ms), one request with 16
steps: weights 0.5 and 0.5 of 42 ms, so the longer point's noise of the same fraction counts 7.4 times as much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from pytest_npubench.campaign.points import Measured
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint

if TYPE_CHECKING:
    from pytest_npubench.stats.allocation import Repeats
    from pytest_npubench.stats.checks import FloatArray

Samples = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveBands:
    """What is known of the workloads' predictions: the points by name, and gradients [num_workloads, num_points] of
    each prediction, over itself, to the points' means."""

    points: Mapping[str, Repeats]
    gradients: FloatArray

    @property
    def half_width(self) -> float:
        """Returns the half width of the widest 90 % band, over its prediction."""
        from pytest_npubench.stats.allocation import half_widths

        return float(half_widths(tuple(self.points.values()), self.gradients).max())

    def next_repeats(self, limit: float, batch_s: float) -> dict[str, int]:
        """Plans repeats of each point in a batch of at most so many seconds."""
        from pytest_npubench.stats.allocation import next_repeats

        chosen = next_repeats(tuple(self.points.values()), self.gradients, limit=limit, batch_s=batch_s)
        return dict(zip(self.points, chosen, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveDetail:
    """What active profiling came to: repeats of a bucket's points by name, seconds of all the campaign's profile
    points, and the half width of the widest workload's 90 % band over its prediction, None where there is none."""

    limit: float
    half_width: float | None
    repeats: Mapping[str, int]
    measured_s: float

    @property
    def words(self) -> str:
        often = " and ".join(map(str, self.repeats.values()))
        band = "no band" if self.half_width is None else f"widest 90 % band ±{self.half_width:.2%}"
        return f"{often} repeats; {band} (limit {self.limit:.2%}) after {self.measured_s:.1f} s of profile points"


def active_bands(plan: BucketPlan, samples: Samples) -> ActiveBands | None:
    """Returns the bands of the workloads whose profile points have samples; None where there is none, a point has fewer
    than the least repeats, or its TTFT or TBT comes out at 0 or below."""
    import numpy as np

    from pytest_npubench.stats.allocation import MIN_REPEATS, Repeats

    if any(len(values) < MIN_REPEATS for values in samples.values()):
        return None
    try:
        rows = [row for workload in plan.size.workloads if (row := _gradient(plan, samples, workload))]
    except MeasurementError:
        return None
    names = [name for name in samples if any(name in row for row in rows)]
    if not names:
        return None
    return ActiveBands(
        points={name: Repeats.of(samples[name]) for name in names},
        gradients=np.array([[row.get(name, 0.0) for name in names] for row in rows]),
    )


def profile_samples_s(plan: BucketPlan, measured: Measured) -> dict[str, tuple[float, ...]]:
    """Returns seconds of the plan's profile points by name, over all rounds, of those that any round visited."""
    planned = (plan.profile_point(point).name for point in plan.profile_points(plan.buckets))
    visited = {name for row in measured.rounds for name in row} - measured.failures.keys()
    return {name: measured.samples(name).samples_s for name in planned if name in visited}


def active_visits(
    plan: BucketPlan, points: Sequence[BucketPoint], measured: Measured, durations_s: Mapping[str, float]
) -> dict[str, int]:
    """How often the next round visits each profile point; empty where repeats are fixed or nothing is known to choose
    by."""
    profiled = [point for point in points if point.pure_bucket is not None and point.variant is None]
    if plan.active_band is None or not profiled:
        return {}
    from pytest_npubench.stats.allocation import MIN_REPEATS

    samples, early = profile_samples_s(plan, measured), len(measured.rounds) < plan.size.min_rounds
    fixed = {point.name: point.visits(durations_s[point.name]) for point in profiled}
    lacking = {name for name in fixed if len(samples.get(name, ())) < MIN_REPEATS}
    if early or lacking:
        each = ceil(MIN_REPEATS / plan.size.min_rounds)
        return {name: min(often, each) if early or name in lacking else 0 for name, often in fixed.items()}
    bands = active_bands(plan, samples)
    if bands is None:
        return {}
    batch_s = sum(often * sum(samples[name]) / len(samples[name]) for name, often in fixed.items())
    chosen = bands.next_repeats(plan.active_band, batch_s)
    return {name: chosen.get(name, 0) for name in fixed}


def is_settled(plan: BucketPlan, measured: Measured) -> bool:
    """Whether the bands are within the plan's limit; so too where repeats are fixed or no workload can be predicted."""
    if plan.active_band is None:
        return True
    from pytest_npubench.stats.allocation import MIN_REPEATS

    samples = profile_samples_s(plan, measured)
    bands = active_bands(plan, samples)
    if bands is None:
        return all(len(values) >= MIN_REPEATS for values in samples.values())
    return bands.half_width <= plan.active_band


def active_detail(plan: BucketPlan, measured: Measured, names: Sequence[str]) -> ActiveDetail | None:
    """With the repeats of these points; None where repeats are fixed."""
    if plan.active_band is None:
        return None
    samples = profile_samples_s(plan, measured)
    bands = active_bands(plan, samples)
    return ActiveDetail(
        limit=plan.active_band,
        half_width=None if bands is None else bands.half_width,
        repeats={name: len(samples[name]) for name in names},
        measured_s=sum(sum(values) for values in samples.values()),
    )


def prediction_weights(
    plan: BucketPlan, samples: Samples, batches: Sequence[BucketPoint]
) -> tuple[float, dict[str, float]]:
    """Predicted seconds of these batches together, without moves, and the weight of each profile point's mean in them;
    no weights where a point has no samples. Raises MeasurementError where a TTFT or TBT comes out at 0 or below."""
    from pytest_npubench.predictors.lens import LensPredictor
    from pytest_npubench.predictors.two_point import fit

    buckets = plan.touched(batches)
    planned = {point: plan.profile_point(point).name for point in plan.profile_points(buckets)}
    if not samples.keys() >= set(planned.values()):
        return 0.0, {}
    profile = fit(
        {point: samples[name] for point, name in planned.items()},
        batch_size=plan.batch_size,
        prefill_shared=plan.service.prefill_shared,
    )
    lens = LensPredictor(profile, keys=plan.service.keys(buckets))
    weights, total_s = defaultdict[object, float](float), 0.0
    for batch in batches:
        lengths = [(item.input_tokens, item.output_tokens) for item in batch.requests]
        total_s += lens.predict_batch(lengths, finished=plan.service.finished).e2e_s
        for timing, share in lens.error_shares(lengths, finished=plan.service.finished).items():
            weights[timing] += share.weight
    first = {point.bucket: point for point in reversed(planned)}  # of its bucket, in the plan as in the fit
    timings = {name: (point.bucket, int(point != first[point.bucket])) for point, name in planned.items()}
    return total_s, {name: weights[timing] for name, timing in timings.items()}


def _gradient(plan: BucketPlan, samples: Samples, workload: str) -> dict[str, float]:
    """Weight of each point's mean in a workload's prediction, over that prediction; empty where a point has no
    samples."""
    total_s, weights = prediction_weights(plan, samples, plan.draws(workload))
    return {name: weight / total_s for name, weight in weights.items()}
