"""llm.npu's techniques on a pair of compute units, each experiment with a pair of its own."""

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


class Offload(Suite):
    name = "offload"
    about = "offloading techniques"
    section = "offload"

    def read(self, root: TomlTable) -> object:
        from pytest_npubench.suites.offload.spec import read_offload

        return read_offload(root)

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.suites.offload.plan import offload_plans

        return offload_plans(spec, choice.profile)

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        from pytest_npubench.suites.offload.bench import OffloadBench

        return OffloadBench(runtime, plan)

    def parts(self, records: Sequence[Mapping[str, Any]], rounds: Sequence[Mapping[str, Any]]) -> Parts:
        from pytest_npubench.suites.offload.report.section import parts

        return parts(records, rounds)

    def lines(self, records: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        from pytest_npubench.suites.offload.report.section import lines

        return lines(records)


SUITE = Offload()
