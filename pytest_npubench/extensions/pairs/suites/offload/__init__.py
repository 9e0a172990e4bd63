"""llm.npu's techniques on a pair of compute units, each experiment with a pair of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pytest_npubench.suites.protocol import Choice, Site, Suite

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import Bench, CampaignPlan
    from pytest_npubench.campaign.visits import Round
    from pytest_npubench.core.hardware import HardwareSpec
    from pytest_npubench.reports.lanes import Lane


class Offload(Suite):
    name = "offload"
    about = "offloading techniques"
    section = "offload"
    record = "spec:OffloadSpec"
    report = "report.section"

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.extensions.pairs.suites.offload.plan import offload_plans

        return offload_plans(spec, choice.profile)

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        from pytest_npubench.extensions.pairs.suites.offload.bench import OffloadBench

        return OffloadBench(runtime, plan)

    def lanes(self, points: Round) -> Iterable[Lane]:
        from pytest_npubench.extensions.pairs.pair_rounds import pair_lanes

        return pair_lanes(points)


SUITE = Offload()
