"""Splits of one model's operators between two compute units, synchronisation and bandwidth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_npubench.suites.protocol import Choice, Site, Suite

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import Bench, CampaignPlan
    from pytest_npubench.core.hardware import HardwareSpec
    from pytest_npubench.core.toml_table import TomlTable
    from pytest_npubench.reports.page import Parts


class Partition(Suite):
    name = "partition"
    about = "splits between compute units"
    section = "partition"

    def read(self, root: TomlTable) -> object:
        from pytest_npubench.suites.partition.spec import read_partition

        return read_partition(root)

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.suites.partition.plan import partition_plans

        return partition_plans(spec, choice.profile)

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        from pytest_npubench.suites.partition.bench import PartitionBench

        return PartitionBench(runtime, plan)

    def parts(self, records: Sequence[Mapping[str, Any]], rounds: Sequence[Mapping[str, Any]]) -> Parts:
        from pytest_npubench.suites.partition.report.section import parts

        return parts(records, rounds)

    def lines(self, records: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        from pytest_npubench.suites.partition.report.section import lines

        return lines(records)


SUITE = Partition()
