"""Any OpenAI-compatible server under open loads, measured from outside."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_npubench.suites.protocol import Choice, Site, Suite, of_module

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.points import Measured
    from pytest_npubench.campaign.protocol import Bench, CampaignPlan
    from pytest_npubench.core.hardware import HardwareSpec


class Server(Suite):
    name = "server"
    about = "an OpenAI-compatible server under open loads"
    section = "server"
    record = "spec:ServerSpec"
    report = "report.open_load"
    lanes = of_module("pytest_npubench.reports.served_lanes:served_lanes")

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.suites.server.plan import server_plans

        return server_plans(spec, choice.profile)

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        from pytest_npubench.suites.server.bench import ServerBench

        return ServerBench(runtime, plan)

    def work(self, plan: Any, points: Sequence[Any], measured: Measured) -> Mapping[str, float]:
        from pytest_npubench.campaign.served_metrics import block_work
        from pytest_npubench.suites.server.blocks import LoadBlock
        from pytest_npubench.suites.server.points import LoadPoint

        loads = [point.name for point in points if isinstance(point, LoadPoint) and point.name not in measured.failures]
        return block_work([block for name in loads for (block,) in measured.visits(name, LoadBlock)])


SUITE = Server()
