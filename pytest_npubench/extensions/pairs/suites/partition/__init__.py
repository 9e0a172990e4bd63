"""Splits of one model's operators between two compute units, synchronisation and bandwidth."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pytest_npubench.core.run_option import Option
from pytest_npubench.suites.protocol import Choice, Site, Suite, of_module

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import Bench, CampaignPlan
    from pytest_npubench.core.hardware import HardwareSpec


def _pair(text: str) -> str:
    from pytest_npubench.extensions.pairs.partition.units import pair_names

    if text not in pair_names() and not text.startswith("openvino:"):
        raise ValueError(f"want one of {', '.join(pair_names())}")
    return text


class Partition(Suite):
    name = "partition"
    about = "splits between compute units"
    section = "partition"
    record = "spec:PartitionSpec"
    report = "report.section"
    options = (Option("pair", "NAME", "split over this pair of units alone, such as cuda-host", _pair),)
    impossible = of_module("work:impossible")
    lanes = of_module("pytest_npubench.extensions.pairs.pair_rounds:pair_lanes")

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.extensions.pairs.suites.partition.plan import partition_plans

        return partition_plans(spec, choice.profile, choice.options.get("pair"))

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        from pytest_npubench.extensions.pairs.suites.partition.bench import PartitionBench

        return PartitionBench(runtime, plan)


SUITE = Partition()
