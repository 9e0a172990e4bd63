"""Splits of one model's operators between two compute units, synchronisation and bandwidth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_npubench.core.run_option import Option
from pytest_npubench.suites.protocol import Choice, Site, Suite

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.points import Measured
    from pytest_npubench.campaign.protocol import Bench, CampaignPlan
    from pytest_npubench.campaign.visits import Round
    from pytest_npubench.core.hardware import HardwareSpec
    from pytest_npubench.reports.lanes import Lane


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

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.extensions.pairs.suites.partition.plan import partition_plans

        return partition_plans(spec, choice.profile, choice.options.get("pair"))

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        from pytest_npubench.extensions.pairs.suites.partition.bench import PartitionBench

        return PartitionBench(runtime, plan)

    def impossible(self, plan: Any, points: Sequence[Any], measured: Measured) -> str:
        from pytest_npubench.extensions.pairs.suites.partition.work import impossible

        return impossible(plan, points, measured)

    def lanes(self, points: Round) -> Iterable[Lane]:
        from pytest_npubench.extensions.pairs.pair_rounds import pair_lanes

        return pair_lanes(points)


SUITE = Partition()
