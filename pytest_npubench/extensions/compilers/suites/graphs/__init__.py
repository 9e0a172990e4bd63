"""The graphs of each bucket on Snapdragons: profiled on a phone by Qualcomm AI Hub, or compiled and emulated here.

Each is a campaign of its own: `phone_*.py` have the phone's, `htp_*.py` the compiler's.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_npubench.suites.protocol import Choice, Site, Suite

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import Bench, CampaignPlan
    from pytest_npubench.core.hardware import HardwareSpec

FAMILY = "qualcomm"


class Graphs(Suite):
    name = "graphs"
    about = "graphs of buckets on Snapdragons; runs only where it is asked for, as by -m graphs"
    report = "report"
    only_by_name = True

    def plans(self, spec: HardwareSpec, choice: Choice) -> Iterable[CampaignPlan]:
        from pytest_npubench.extensions.compilers.suites.graphs.htp_plan import HtpPlan
        from pytest_npubench.extensions.compilers.suites.graphs.phone_plan import PhonePlan
        from pytest_npubench.extensions.compilers.suites.programs import program_plans

        if spec.family != FAMILY:
            return ()
        return (*program_plans(PhonePlan, spec, choice.profile), *program_plans(HtpPlan, spec, choice.profile))

    def bench(self, runtime: Runtime, plan: Any, site: Site) -> Bench[Any]:
        from pytest_npubench.extensions.compilers.compiled.runtime import CompilerRuntime

        if not isinstance(runtime, CompilerRuntime):
            from pytest_npubench.extensions.compilers.suites.graphs.phone_bench import GraphBench

            return GraphBench(runtime, plan, site.folder / "aihub-jobs")
        from pytest_npubench.extensions.compilers.qnn import compiler
        from pytest_npubench.extensions.compilers.suites.compiler_bench import CompilerBench
        from pytest_npubench.extensions.compilers.suites.graphs.htp_plan import HtpVisit

        return CompilerBench(
            runtime,
            site.folder / "compiled",
            num_devices=plan.spec.tensor_parallel,
            start=partial(compiler.htp_process, runtime.topology),
            request=plan.graph,
            visit=HtpVisit.of,
            alone=(plan.whole,),  # its compiler takes six times the weights
        )


SUITE = Graphs()
