"""What the section of llm.npu's techniques shows, whose campaigns are one an experiment, and what the end of a run says
of them."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.extensions.pairs.pair_rounds import pair_rounds
from pytest_npubench.extensions.pairs.suites.offload.kinds.chunk_sharing import ChunkSharingDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.contention import ContentionDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.factorial import FactorialDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.out_of_order import OutOfOrderDetail
from pytest_npubench.extensions.pairs.suites.offload.kinds.shadow_outlier import ShadowOutlierDetail
from pytest_npubench.extensions.pairs.suites.offload.report.chunk_sharing import chunk_table
from pytest_npubench.extensions.pairs.suites.offload.report.factorial import cell_table, effect_line, effect_table
from pytest_npubench.extensions.pairs.suites.offload.report.orders import (
    contention_table,
    order_line,
    replayed_table,
    simulated_table,
)
from pytest_npubench.extensions.pairs.suites.offload.report.shadow_outlier import (
    error_chart,
    sync_share_table,
    time_chart,
)
from pytest_npubench.reports.build import of_each
from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts, Rounds
from pytest_npubench.reports.reported import LLM_NPU
from pytest_npubench.reports.reported_figures import figures_table
from pytest_npubench.verdict.case_record import Cases

DRIFT = (
    "Time of each point in a round over its mean in all rounds: the work is the same in each, but for random stalls "
    "and what else takes the memory."
)
HEADLINES = (("abstract", "value"), ("3.3", "share"), ("4.1", "speed_up"), ("heteroinfer", "prefill"))


def parts(cases: Cases, rounds: Rounds) -> Parts:
    """Every chart and table that these cases on one device have data for; the paper's own figures last."""
    orders = cases.of("out_of_order", OutOfOrderDetail)
    shadows = cases.of("shadow_outlier", ShadowOutlierDetail)
    charts = (
        *(chart for make in (error_chart, time_chart) for chart in of_each(make, shadows)),
        drift_chart(pair_rounds(rounds), DRIFT),
    )
    factorials = cases.of("factorial", FactorialDetail)
    tables = (
        *of_each(chunk_table, cases.of("chunk_sharing", ChunkSharingDetail)),
        *map(sync_share_table, shadows),
        *of_each(simulated_table, orders),
        *of_each(replayed_table, orders),
        *of_each(contention_table, cases.of("contention", ContentionDetail)),
        *(table for make in (cell_table, effect_table) for table in of_each(make, factorials)),
        figures_table(LLM_NPU, HEADLINES) if any(record.detail for record in cases.records) else None,
    )
    return tuple(chart for chart in charts if chart is not None), tables, sentences(lines(cases))


def lines(cases: Cases) -> Sequence[str]:
    """One line for the orders and one for the factorial, where they were measured."""
    contended = [order_line(record) for record in cases.of("contention", ContentionDetail)]
    calm = [order_line(record) for record in cases.of("out_of_order", OutOfOrderDetail)]
    effects = [effect_line(record) for record in cases.of("factorial", FactorialDetail)]
    return [line for line in (*(contended or calm), *effects) if line]
