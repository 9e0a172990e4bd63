"""What the section of llm.npu's techniques shows, whose campaigns are one an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts
from pytest_npubench.reports.pair_rounds import pair_rounds
from pytest_npubench.reports.record_fields import Record
from pytest_npubench.suites.offload.report import notes
from pytest_npubench.suites.offload.report.charts import offload_charts
from pytest_npubench.suites.offload.report.lines import offload_lines
from pytest_npubench.suites.offload.report.tables import offload_tables


def parts(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    drift = drift_chart(pair_rounds(rounds), notes.DRIFT)
    charts = (*offload_charts(records), *(() if drift is None else (drift,)))
    return charts, offload_tables(records), sentences(offload_lines(records))
