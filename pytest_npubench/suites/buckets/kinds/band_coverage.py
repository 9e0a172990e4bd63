"""Does LENS's 90 % band hold 90 % of the measured batches? All batches of a campaign, and the points it has anyway.

A batch counts as covered where its measured mean lies in the band of that mean: the band of the prediction, widened by
the mean's own error. Batches share profile points, so their misses come together; how many of them chance allows is
simulated with the errors shared as they are (stats/coverage.py), where independent batches would have the binomial
bound. A campaign of fewer batches than MIN_BATCHES tells too little and has no such case.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.kinds.mean_error import KIND as MEAN_ERROR
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.stats.coverage import Compared

COVERAGE = 0.9
HALF_MARGIN = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageDetail:
    """How many of num_batches have their mean inside the band, how many misses chance allows, and the mean half width
    of the bands over the measured means."""

    coverage: float
    num_batches: int
    num_covered: int
    most_misses: int
    half_width: float


class BandCoverageKind(BucketKind):
    name = "band_coverage"

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        return MEAN_ERROR.points(case, plan)

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        from pytest_npubench.stats.coverage import covered, half_widths, most_misses

        compared = [one for workload in plan.size.workloads for one in _compared(plan, measured, workload)]
        num_covered, most = sum(covered(one, COVERAGE) for one in compared), most_misses(compared, COVERAGE)
        half = fmean(
            float(width) / one.measured_s for width, one in zip(half_widths(compared, COVERAGE), compared, strict=True)
        )
        missed = len(compared) - num_covered
        gate = Gate(metric=f"batches outside the {COVERAGE:.0%} band", value=missed, limit=most)
        measured_s = sum(one.measured_s for one in compared)
        predicted_s = sum(one.predicted_s for one in compared)
        return Judgement(
            verdict=judge_gates((gate,)),
            what=f"E2E of {len(compared)} batches",
            metrics=(
                Metric(name="covered_fraction", unit="", value=num_covered / len(compared), gate="none"),
                Metric(name="band_half_width", unit="", value=half, gate="difference", margin=HALF_MARGIN),
            ),
            measured_s=measured_s,
            predicted_s=predicted_s,
            error=predicted_s / measured_s - 1,
            detail=CoverageDetail(
                coverage=COVERAGE, num_batches=len(compared), num_covered=num_covered, most_misses=most, half_width=half
            ),
        )


def _compared(plan: BucketPlan, measured: Measured, workload: str) -> list[Compared]:
    """Each batch of a workload, with what its prediction and its mean are known by."""
    from pytest_npubench.predictors.lens import LensPredictor
    from pytest_npubench.stats.coverage import Compared
    from pytest_npubench.suites.buckets.profile_samples import lens_profile

    batches = plan.draws(workload)
    buckets = plan.touched(batches)
    lens = LensPredictor(lens_profile(plan, measured, buckets), keys=plan.service.keys(buckets))
    compared = []
    for batch in batches:
        lengths = [(one.input_tokens, one.output_tokens) for one in batch.requests]
        compared.append(
            Compared.of(
                predicted_s=lens.predict_batch(lengths, finished=plan.service.finished).e2e_s,
                shares=lens.error_shares(lengths, finished=plan.service.finished),
                samples_s=measured.samples(batch.name).samples_s,
            )
        )
    return compared


KIND = BandCoverageKind()
