"""Does LENS find the best bucket set? Every set of at most two buckets, and all of them, measured (LENS, 5.4.2).

The profile is that of the engine that has all buckets; an engine of each set runs the same batch in the same rounds.
Judged as batch_search is.
"""

from __future__ import annotations

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.planning.kinds.batch_search import (
    RANKED,
    batch_points,
    batches_s,
    profile_points,
    ranked,
    whole,
)
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, Variant
from pytest_npubench.suites.protocol import ShownKind
from pytest_npubench.verdict.result import Judgement


class BucketSearchKind(BucketKind, ShownKind):
    name = "bucket_search"
    note = RANKED
    axis = "workload"

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        workload = str(case.axis("workload"))
        batches = (point for variant in _variants(plan) for point in batch_points(plan, workload, variant))
        return (*profile_points(plan, whole(plan)), *batches)

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        from pytest_npubench.extensions.planning.bucket_search import Demand, set_seconds
        from pytest_npubench.suites.buckets.profile_samples import lens_profile

        workload, every = str(case.axis("workload")), whole(plan)
        profile = lens_profile(plan.of(every), every.measured(measured), plan.buckets)
        batches = plan.searched_batches(workload, every)
        pairs = [[(one.input_tokens, one.output_tokens) for one in batch.requests] for batch in batches]
        demand = Demand.of(profile, pairs, plan.service.finished)
        predicted_s, rounds_s = {}, {}
        for variant in _variants(plan):
            name = ", ".join(map(str, variant.buckets))
            predicted_s[name] = set_seconds(demand, profile, variant.buckets)
            rounds_s[name] = batches_s(measured, batches, variant)
        return ranked(plan, workload, "bucket sets", predicted_s, rounds_s)


def _variants(plan: BucketPlan) -> list[Variant]:
    return [variant for variant in plan.variants if variant.batch_size == plan.batch_size]


KIND = BucketSearchKind()
