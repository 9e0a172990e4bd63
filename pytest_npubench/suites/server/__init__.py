"""Any OpenAI-compatible server under open loads, measured from outside."""

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


class Server(Suite):
    name = "server"
    about = "an OpenAI-compatible server under open loads"
    section = "server"

    def read(self, root: TomlTable) -> object:
        from pytest_npubench.suites.server.spec import ServerSpec

        return root.read("server", ServerSpec)

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.suites.server.plan import server_plans

        return server_plans(spec, choice.profile)

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        from pytest_npubench.suites.server.bench import ServerBench

        return ServerBench(runtime, plan)

    def parts(self, records: Sequence[Mapping[str, Any]], rounds: Sequence[Mapping[str, Any]]) -> Parts:
        from pytest_npubench.suites.server.report.section import parts

        return parts(records, rounds)

    def lines(self, records: Sequence[Mapping[str, Any]]) -> Sequence[str]:
        from pytest_npubench.suites.server.report.lines import server_lines

        return server_lines(records)


SUITE = Server()
