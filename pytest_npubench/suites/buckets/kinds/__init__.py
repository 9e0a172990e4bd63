"""The kinds of bucket cases, a file each, and what most of them share."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_npubench.campaign.points import Measured
    from pytest_npubench.core.case import Axes, Case
    from pytest_npubench.suites.buckets.plan import BucketPlan


class BucketKind:
    """A CaseKind with a case for each "bucket" or "workload" of a plan, as `axis` says, or with one case."""

    suite = "buckets"
    axis = ""

    def axes(self, plan: BucketPlan) -> Iterable[Axes]:
        values: Mapping[str, Sequence[int | str]] = {"bucket": plan.buckets, "workload": plan.size.workloads}
        return (((self.axis, value),) for value in values[self.axis]) if self.axis else ((),)

    def settled(self, case: Case, plan: BucketPlan, measured: Measured) -> bool:
        return True
