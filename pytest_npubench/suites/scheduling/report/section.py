"""What a serving campaign's section of a report shows, and what the suite says at the end of a run.

Worked example: an expert_load_ratio of 0.62 and a ttft_ratio of 0.55 make "layered / chunked: expert bytes -38 %, mean
TTFT -45 %, at 0.85 req/s (layered-arxiv-div32, small-moe, 3 blocks)", and attainments of 0.96 and 0.83
"SLO attainment 96 % against 83 %" between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_npubench.engines import title_of
from pytest_npubench.reports import definitions
from pytest_npubench.reports.build import of_each, of_kind
from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.detail_parts import detail_parts
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts, Rounds
from pytest_npubench.suites.scheduling import SUITE
from pytest_npubench.suites.scheduling.kinds.attainment import AttainmentDetail
from pytest_npubench.suites.scheduling.kinds.dense_control import DenseControlDetail
from pytest_npubench.suites.scheduling.kinds.expert_loads import ExpertLoadsDetail
from pytest_npubench.suites.scheduling.kinds.identical_tokens import IdenticalTokensDetail
from pytest_npubench.suites.scheduling.kinds.policy import PolicyDetail
from pytest_npubench.suites.scheduling.points import figures_in
from pytest_npubench.suites.scheduling.report.attainment import attainment_chart, capacity_table
from pytest_npubench.suites.scheduling.report.iterations import iterations_chart
from pytest_npubench.suites.scheduling.report.policy import latency_table, policy_charts, policy_table, served_loads
from pytest_npubench.verdict.case_record import CaseRecord, Cases

DRIFT = (
    "Figure of each point in a round over its mean in all rounds: of a block the mean TTFT of its requests, which are "
    "others in each round but the same for every policy; of a prompt its prefill and of a decode batch its step, which "
    "repeat the same work and show the machine alone."
)
NOTES = {
    "answers": definitions.ANSWERS,
    "chunk_rate": (
        "Chunked prefill by chunk size, each at the rate at which half of the requests have their first token within "
        "the TTFT limit; the other figures lie between those of the rates that were served."
    ),
    "chunk_sweep": (
        "One prompt in chunks of a size. Each chunk loads every expert that one of its tokens is routed to, so smaller "
        "chunks load the same experts again; bytes are the experts loaded, summed over chunks and layers, times the "
        "bytes of one expert. Measured is the time from the prompt's arrival to its first token."
    ),
    "dense_control": (
        "A dense decoder has no expert loads to save: layered prefill must not win here. Ratios are means over pairs "
        "of blocks that served the same requests."
    ),
    "disaggregated": (
        "One process prefills, another decodes, on equal hardware together; a request's keys and values go from one to "
        "the other, which is part of its first gap. The other policies have all of it as one."
    ),
    "energy": (
        "Power and energy are those of the device's counter around each block, idle power included. A processor's "
        "counter is that of its whole packages, whoever used them. Idle power is measured beside the blocks with the "
        "weights loaded."
    ),
    "expert_coverage": (
        "Expert coverage: distinct experts that the rows of one decode step are routed to, over the experts of a "
        "layer, mean over layers. Measured is the time of the step."
    ),
    "expert_loads": (
        "Experts loaded by each iteration, summed over layers and iterations, times the bytes of one: the same "
        "requests under both policies, all blocks together."
    ),
    "group_sweep": (
        "Layered prefill with a fixed number of layer groups, one of which prefills in an iteration: mean TTFT of all "
        "requests, and the longest gap between two tokens of any request."
    ),
    "relaxed_slo": (
        "All requests are there when a block begins. With larger iterations, that is longer chunks and fewer layer "
        "groups, both policies should come close to each other."
    ),
    "timeline": (
        "When each token of one request came, since its arrival: the request with the median end-to-end time under "
        "chunked prefill in the first block."
    ),
}
"""By kind, what its figures mean."""
PICTURED = {
    "attainment": (
        "factors",
        "rate_per_s",
        "attainment",
        "capacity",
        "capacity_ratio",
        "capacity_ratio_interval",
        "why",
    ),
    "policy": ("policy", "settings", "workload", "rate_per_s", "clock", "slo", "num_blocks", "figures", "measured_s"),
}
"""By kind, the fields that pictures of its own show."""
RATIOS = {
    "expert_load_ratio": "expert bytes",
    "ttft_ratio": "mean TTFT",
    "tbt_ratio": "mean TBT",
    "e2e_ratio": "mean E2E",
}


def parts(cases: Cases, rounds: Rounds) -> Parts:
    policies, attainments = cases.of("policy", PolicyDetail), cases.of("attainment", AttainmentDetail)
    loads = served_loads(policies)
    detail_charts, detail_tables = detail_parts(cases, pictured=PICTURED, notes={**NOTES, **SUITE.notes()})
    compared = map(_changed, cases.of("expert_loads", ExpertLoadsDetail))
    answer = next((f"Layered / chunked: {', '.join(changes[:3])}" for changes in compared if changes), "")
    charts = (
        *of_kind("policy", policy_charts(loads, answer)),
        *of_each(attainment_chart, attainments),
        *detail_charts,
        *of_kind("policy", [iterations_chart(rounds, map(_point_of, policies))]),
        drift_chart([{**record, "points": figures_in(record["points"])} for record in rounds], DRIFT),
    )
    tables = (
        *of_kind("policy", (made for load in loads for made in (latency_table(load), policy_table(load)))),
        *of_each(capacity_table, attainments),
        *detail_tables,
    )
    stated = ((case.judgement.engine, case.detail.engine_settings) for case in policies if case.detail.engine_settings)
    settings = (f"Settings of {title_of(engine or 'the engine')}, {words}" for engine, words in stated)
    remarks = [*lines(cases), *dict.fromkeys(settings)]
    return tuple(made for made in charts if made is not None), tables, sentences(remarks)


def _point_of(case: CaseRecord[PolicyDetail]) -> str:
    """Returns the name of the point whose blocks a policy case judges."""
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
            f"{case.what} ({_about(case, f'{case.detail.num_blocks:,} blocks')})"
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
    about = _about(case, f"geometric mean of {num_blocks:,} blocks")
    return f"{beginning}: {', '.join((*_changed(case), *more))}, at {rate_per_s:.3g} req/s ({about})"


def _changed(case: CaseRecord[Any]) -> list[str]:
    """Returns what layered prefill has of each figure, against chunked."""
    ratios = ((called, case.metric(name)) for name, called in RATIOS.items())
    return [f"{called} {round(100 * (ratio.value - 1)):+d} %" for called, ratio in ratios if ratio is not None]


def _about(case: CaseRecord[Any], blocks: str) -> str:
    engine, device = case.judgement.engine, case.device
    return ", ".join(
        (
            case.axis("workload"),
            case.model,
            blocks,
            *([title_of(engine)] if engine else ()),
            *([device] if device and not device.endswith(":0") else ()),
        )
    )
