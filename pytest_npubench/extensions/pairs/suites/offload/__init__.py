"""llm.npu's techniques on a pair of compute units, each experiment with a pair of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pytest_npubench.suites.protocol import Choice, Site, Suite, of_module

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import Bench, CampaignPlan
    from pytest_npubench.core.hardware import HardwareSpec


class Offload(Suite):
    name = "offload"
    about = "offloading techniques"
    section = "offload"
    record = "spec:OffloadSpec"
    report = "report.section"
    lanes = of_module("pytest_npubench.extensions.pairs.pair_rounds:pair_lanes")

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.extensions.pairs.suites.offload.plan import offload_plans

        return offload_plans(spec, choice.profile)

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        from pytest_npubench.extensions.pairs.suites.offload.bench import OffloadBench

        return OffloadBench(runtime, plan)


SUITE = Offload()
