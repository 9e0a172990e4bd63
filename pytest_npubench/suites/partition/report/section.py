"""What a partition campaign's section of a report shows."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports.campaign_sections import sentences
from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts
from pytest_npubench.reports.pair_rounds import pair_rounds
from pytest_npubench.reports.record_fields import Record
from pytest_npubench.suites.partition.report import notes
from pytest_npubench.suites.partition.report.charts import partition_charts
from pytest_npubench.suites.partition.report.lines import partition_lines
from pytest_npubench.suites.partition.report.tables import partition_tables


def parts(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    drift = drift_chart(pair_rounds(rounds), notes.DRIFT)
    charts = (*partition_charts(records), *(() if drift is None else (drift,)))
    return charts, partition_tables(records), sentences(partition_lines(records))
