"""What a serving campaign's section of a report shows, and what the suite says at the end of a run.

Worked example: an expert_load_ratio of 0.62 and a ttft_ratio of 0.55 make "layered / chunked: expert bytes -38 %, mean
TTFT -45 %, at 0.85 req/s (layered-arxiv-div32, small-moe, 3 blocks)", and attainments of 0.96 and 0.83
"SLO attainment 96 % against 83 %" between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_npubench.campaign.answer_judgement import AnswersDetail
from pytest_npubench.engines import title_of
from pytest_npubench.reports.answers import answers_table
from pytest_npubench.reports.build import of_each, of_kind
from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts, Rounds
from pytest_npubench.suites.scheduling import SUITE
from pytest_npubench.suites.scheduling.kinds.attainment import AttainmentDetail
from pytest_npubench.suites.scheduling.kinds.burstiness import BurstinessDetail
from pytest_npubench.suites.scheduling.kinds.chunk_rate import ChunkRateDetail
from pytest_npubench.suites.scheduling.kinds.chunk_sweep import ChunkSweepDetail
from pytest_npubench.suites.scheduling.kinds.dense_control import DenseControlDetail
from pytest_npubench.suites.scheduling.kinds.disaggregated import DisaggregatedDetail
from pytest_npubench.suites.scheduling.kinds.energy import EnergyDetail
from pytest_npubench.suites.scheduling.kinds.expert_coverage import ExpertCoverageDetail
from pytest_npubench.suites.scheduling.kinds.expert_loads import ExpertLoadsDetail
from pytest_npubench.suites.scheduling.kinds.group_sweep import GroupSweepDetail
from pytest_npubench.suites.scheduling.kinds.identical_tokens import IdenticalTokensDetail
from pytest_npubench.suites.scheduling.kinds.policy import PolicyDetail
from pytest_npubench.suites.scheduling.kinds.relaxed_slo import RelaxedSloDetail
from pytest_npubench.suites.scheduling.kinds.timeline import TimelineDetail
from pytest_npubench.suites.scheduling.points import figures_in
from pytest_npubench.suites.scheduling.report.attainment import attainment_chart, capacity_table
from pytest_npubench.suites.scheduling.report.burstiness import burst_table
from pytest_npubench.suites.scheduling.report.cells import workload_of
from pytest_npubench.suites.scheduling.report.chunk_rate import chunk_rate_table
from pytest_npubench.suites.scheduling.report.chunk_sweep import chunk_charts
from pytest_npubench.suites.scheduling.report.dense_control import dense_table
from pytest_npubench.suites.scheduling.report.disaggregated import apart_table
from pytest_npubench.suites.scheduling.report.energy import energy_table
from pytest_npubench.suites.scheduling.report.expert_coverage import coverage_chart
from pytest_npubench.suites.scheduling.report.expert_loads import loads_table
from pytest_npubench.suites.scheduling.report.group_sweep import group_chart
from pytest_npubench.suites.scheduling.report.iterations import iterations_chart
from pytest_npubench.suites.scheduling.report.policy import latency_table, policy_charts, policy_table, served_loads
from pytest_npubench.suites.scheduling.report.relaxed_slo import relaxed_table
from pytest_npubench.suites.scheduling.report.timeline import timeline_chart
from pytest_npubench.verdict.case_record import CaseRecord, Cases

DRIFT = (
    "Figure of each point in a round over its mean in all rounds: of a block the mean TTFT of its requests, which are "
    "others in each round but the same for every policy; of a prompt its prefill and of a decode batch its step, which "
    "repeat the same work and show the machine alone."
)
RATIOS = {
    "expert_load_ratio": "expert bytes",
    "ttft_ratio": "mean TTFT",
    "tbt_ratio": "mean TBT",
    "e2e_ratio": "mean E2E",
}


def parts(cases: Cases, rounds: Rounds) -> Parts:
    policies, attainments = cases.of("policy", PolicyDetail), cases.of("attainment", AttainmentDetail)
    loads = served_loads(policies)
    charts = (
        *of_kind("policy", policy_charts(loads)),
        *of_kind("chunk_sweep", chunk_charts(cases.of("chunk_sweep", ChunkSweepDetail))),
        *of_kind("expert_coverage", [coverage_chart(cases.of("expert_coverage", ExpertCoverageDetail))]),
        *of_each(group_chart, cases.of("group_sweep", GroupSweepDetail)),
        *of_each(attainment_chart, attainments),
        *of_each(timeline_chart, cases.of("timeline", TimelineDetail)),
        *of_kind("policy", [iterations_chart(rounds, map(_point_of, policies))]),
        drift_chart([{**record, "points": figures_in(record["points"])} for record in rounds], DRIFT),
    )
    tables = (
        *of_kind("answers", [answers_table(cases.of("answers", AnswersDetail))]),
        *of_kind("policy", (made for load in loads for made in (latency_table(load), policy_table(load)))),
        *of_each(capacity_table, attainments),
        *of_each(chunk_rate_table, cases.of("chunk_rate", ChunkRateDetail)),
        *of_each(dense_table, cases.of("dense_control", DenseControlDetail)),
        *of_each(apart_table, cases.of("disaggregated", DisaggregatedDetail)),
        *of_each(energy_table, cases.of("energy", EnergyDetail)),
        *of_each(loads_table, cases.of("expert_loads", ExpertLoadsDetail)),
        *of_each(relaxed_table, cases.of("relaxed_slo", RelaxedSloDetail)),
        *of_each(burst_table, cases.of("burstiness", BurstinessDetail)),
        *(table for kind in SUITE.shown_kinds() for table in kind.tables(cases)),
    )
    own_settings = dict.fromkeys(case.detail.vllm for case in policies if case.detail.vllm)
    remarks = [*lines(cases), *(f"Settings of vLLM, {settings}" for settings in own_settings)]
    return tuple(made for made in charts if made is not None), tables, sentences(remarks)


def _point_of(case: CaseRecord[PolicyDetail]) -> str:
    """The name of the point whose blocks a policy case judges."""
    settings = ",".join(f"{name}={value}" for name, value in case.detail.settings.items())
    return f"{case.detail.policy}({settings})/{case.detail.workload}@{case.axis('rate')}"


def lines(cases: Cases) -> list[str]:
    """One line for each expert_loads, dense_control and identical_tokens case that was measured, in that order."""
    return [
        *map(_loads_line, cases.of("expert_loads", ExpertLoadsDetail)),
        *(
            _changes("dense control, layered / chunked", case, case.detail.rate_per_s, case.detail.num_blocks)
            for case in cases.of("dense_control", DenseControlDetail)
        ),
        *(
            f"{case.what} ({_about(case, case.detail.num_blocks)})"
            for case in cases.of("identical_tokens", IdenticalTokensDetail)
        ),
    ]


def _loads_line(case: CaseRecord[ExpertLoadsDetail]) -> str:
    attained, more = case.detail.slo_attainment, []
    if attained.keys() >= {"layered", "chunked"}:
        more = [f"SLO attainment {100 * attained['layered']:.0f} % against {100 * attained['chunked']:.0f} %"]
    return _changes("layered / chunked", case, case.detail.rate_per_s, case.detail.num_blocks, more)


def _changes(
    beginning: str, case: CaseRecord[Any], rate_per_s: float, num_blocks: int, more: Sequence[str] = ()
) -> str:
    ratios = ((called, case.metric(name)) for name, called in RATIOS.items())
    changes = [f"{called} {round(100 * (ratio.value - 1)):+d} %" for called, ratio in ratios if ratio is not None]
    return f"{beginning}: {', '.join((*changes, *more))}, at {rate_per_s:.3g} req/s ({_about(case, num_blocks)})"


def _about(case: CaseRecord[Any], num_blocks: int) -> str:
    engine, device = case.judgement.engine, case.device
    return ", ".join(
        (
            workload_of(case),
            case.model,
            f"{num_blocks:,} blocks",
            *([title_of(engine)] if engine else ()),
            *([device] if device and not device.endswith(":0") else ()),
        )
    )
