"""The bucket suite on Qualcomm AI Hub: cases rest on graphs, and the devices are not ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_npubench.suites.buckets.aihub.plan import HubPlan, hub_plan
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.service import BucketService

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.kind import CaseKind
    from pytest_npubench.campaign.protocol import Bench


class HubBuckets(BucketService):
    fills_memory = False

    def plan(self, plan: BucketPlan) -> BucketPlan:
        return hub_plan(plan)

    def kind_for(self, plan: BucketPlan, kind: CaseKind[Any]) -> CaseKind[Any]:
        from pytest_npubench.suites.buckets.aihub.kinds import kind_for

        return kind_for(plan, kind)

    def bench(self, runtime: Runtime, plan: BucketPlan, folder: Path) -> Bench[Any]:
        from pytest_npubench.suites.buckets.aihub.bench import GraphBench

        assert isinstance(plan, HubPlan)  # plan() made it
        return GraphBench(runtime, plan, folder / "aihub-jobs")
