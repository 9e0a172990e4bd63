"""Is the smallest bucket that holds a batch the fastest? It and every larger one, measured (LENS, section 5.4.2).

Compilers make some larger shapes faster than smaller ones: an engine may do better to run a batch in a larger bucket
than it needs, by argmin over b >= l of what LENS predicts in the smallest fit's place. One batch of each bucket runs
where it fits and, on engines that lack the buckets between, in every larger one, in the same rounds. Judged as
batch_search is. `gain` is what the predicted choice saves of the smallest fit's time, 0 where that is the choice: on a
device whose latency only grows with the bucket the case confirms it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.extensions.planning.kinds.batch_search import RANKED, profile_points, ranked, whole
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.plan import SEARCH_VISIT_S, BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, Variant
from pytest_npubench.suites.protocol import ShownKind
from pytest_npubench.verdict.result import Judgement, Metric

GAIN_MARGIN = 0.02


class BucketChoiceKind(BucketKind, ShownKind):
    name = "bucket_choice"
    note = RANKED

    def axes(self, plan: BucketPlan) -> Iterable[Axes]:
        return ((("bucket", bucket),) for bucket in plan.buckets[:-1])

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        return (*profile_points(plan, whole(plan)), *_choices(plan, int(case.axis("bucket"))).values())

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        from pytest_npubench.extensions.planning.bucket_search import Demand, set_seconds
        from pytest_npubench.suites.buckets.profile_samples import lens_profile

        bucket, every = int(case.axis("bucket")), whole(plan)
        profile = lens_profile(plan.of(every), every.measured(measured), plan.buckets)
        choices = _choices(plan, bucket)
        requests = choices[bucket].requests
        demand = Demand.of(
            profile, [[(one.input_tokens, one.output_tokens) for one in requests]], plan.service.finished
        )
        predicted_s, rounds_s = {}, {}
        for larger, point in choices.items():
            predicted_s[str(larger)] = set_seconds(demand, profile, _set(plan, larger))
            rounds_s[str(larger)] = measured.round_means_s(point.name)
        judgement = ranked(plan, f"a batch of bucket {bucket}", "buckets", predicted_s, rounds_s, requests)
        chosen = min(predicted_s, key=lambda name: predicted_s[name])
        gains = [1 - one / fit for one, fit in zip(rounds_s[chosen], rounds_s[str(bucket)], strict=True)]
        gain = Metric(
            name="gain",
            unit="",
            value=fmean(gains),
            better="higher",
            samples=tuple(gains),
            gate="difference",
            margin=GAIN_MARGIN,
        )
        return replace(judgement, metrics=(*judgement.metrics, gain))


def _set(plan: BucketPlan, bucket: int) -> tuple[int, ...]:
    """Buckets of an engine on which what fits a smaller one runs in this."""
    return tuple(dict.fromkeys((bucket, plan.buckets[-1])))


def _choices(plan: BucketPlan, bucket: int) -> dict[int, BucketPoint]:
    """By the bucket that it runs in, the batch of the bucket's longer profile point."""
    *_, longer = (one for one in plan.profile_points((bucket,)))
    batch = BucketPoint(
        name=f"choice/{bucket}", requests=plan.profile_point(longer).requests, warm_up=False, visit_s=SEARCH_VISIT_S
    )
    return {
        larger: Variant(batch_size=plan.batch_size, buckets=_set(plan, larger)).of(batch)
        for larger in plan.buckets
        if larger >= bucket
    }


KIND = BucketChoiceKind()
