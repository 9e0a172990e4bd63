"""What a serving campaign's section of a report shows."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import definitions
from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts
from pytest_npubench.reports.record_fields import Record
from pytest_npubench.reports.served_loads import served_loads
from pytest_npubench.suites.scheduling.report.charts import scheduling_charts
from pytest_npubench.suites.scheduling.report.experiment_tables import experiment_tables
from pytest_npubench.suites.scheduling.report.latency_tables import latency_table
from pytest_npubench.suites.scheduling.report.lines import comparison_lines, vllm_policy_lines
from pytest_npubench.suites.scheduling.report.policy_tables import burst_tables, policy_table
from pytest_npubench.suites.scheduling.report.rounds import served_rounds


def parts(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    drift = drift_chart(served_rounds(rounds), definitions.SERVING_DRIFT)
    charts = (*scheduling_charts(records), *(() if drift is None else (drift,)))
    loads = served_loads(records)
    of_loads = (made for load in loads for made in (latency_table(load), policy_table(load)))
    tables = (*of_loads, *experiment_tables(records), *burst_tables(records))
    return charts, tables, sentences([*comparison_lines(records), *vllm_policy_lines(records)])
