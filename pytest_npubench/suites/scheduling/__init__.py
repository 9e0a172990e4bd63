"""Prefill scheduling: blocks of requests served under policies, in turn, on one engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_npubench.core.run_option import Option, switch
from pytest_npubench.suites.protocol import Choice, Site, Suite, of_module

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.memory import MemoryModel
    from pytest_npubench.campaign.points import Measured
    from pytest_npubench.campaign.protocol import Bench, CampaignPlan
    from pytest_npubench.core.hardware import HardwareSpec


class Scheduling(Suite):
    name = "scheduling"
    about = "prefill scheduling policies"
    section = "serving"
    record = "spec:ServingSpec"
    report = "report.section"
    options = (
        Option(
            "no_graphs", "", "launch decode batches on CUDA kernel by kernel, for comparison with graphs", switch, False
        ),
    )
    frozen = of_module("held_to:frozen_calibrations")
    held_to = of_module("held_to:with_held_to")
    impossible = of_module("work:impossible")
    lanes = of_module("pytest_npubench.reports.served_lanes:served_lanes")

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.suites.scheduling.plan import serving_plans

        return serving_plans(spec, choice.profile, choice.engine, graphs=not choice.options.get("no_graphs"))

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        from pytest_npubench.suites.scheduling.bench import ServingBench

        return ServingBench(runtime, plan, site.folder / "models", site.frozen)

    def unsupported(self, plan: Any, points: Sequence[Any]) -> str:
        from pytest_npubench.suites.scheduling.service import service_of

        return service_of(plan).why_unsupported(plan, points)

    def remarks(self, plan: Any, points: Sequence[Any]) -> Sequence[str]:
        from pytest_npubench.suites.scheduling.service import service_of

        return service_of(plan).remarks(plan, points)

    @property
    def memory(self) -> MemoryModel:
        from pytest_npubench.suites.scheduling import memory

        return memory

    def used(self, points: Sequence[Any], measured: Measured) -> Mapping[str, Any]:
        from pytest_npubench.suites.scheduling.held_to import calibrations_in

        return calibrations_in(points, measured.rounds)

    def work(self, plan: Any, points: Sequence[Any], measured: Measured) -> Mapping[str, float]:
        from pytest_npubench.suites.scheduling.work import work_of

        return work_of(points, measured)


SUITE = Scheduling()
