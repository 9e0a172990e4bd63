"""What a bucket campaign's section of a report shows."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports.drift import drift_chart
from pytest_npubench.reports.page import Parts
from pytest_npubench.reports.predictions import predictions
from pytest_npubench.reports.record_fields import Record, kind_of, number, table
from pytest_npubench.suites.buckets.report.charts import bucket_charts, cost_table, steps_chart
from pytest_npubench.suites.buckets.report.continuous_lines import continuous_lines
from pytest_npubench.suites.buckets.report.prediction_charts import batch_chart, error_chart, padding_chart


def parts(records: Sequence[Record], rounds: Sequence[Record]) -> Parts:
    remarks = (*(f"{line}." for line in continuous_lines(records)), *_mean_errors(records))
    found = predictions(records)
    charts = [
        *bucket_charts(records),
        steps_chart(records),
        drift_chart(rounds),
        *((error_chart(found), batch_chart(found), padding_chart(found)) if found else ()),
    ]
    return tuple(chart for chart in charts if chart is not None), (cost_table(records),), remarks


def _mean_errors(records: Sequence[Record]) -> list[str]:
    """What the mean_error case of the campaign says."""
    remarks = []
    for record in records:
        mean = number(record, "error")
        if kind_of(record) == "mean_error" and mean is not None:
            detail = table(record, "detail")
            parts = {name: number(detail, name) for name in ("signed_mean", "median", "p90", "max")}
            shown = ", ".join(
                f"{name.replace('_', ' ')} {value:.2%}" for name, value in parts.items() if value is not None
            )
            remarks.append(f"Mean prediction error {mean:.2%}{f' ({shown})' if shown else ''}.")
            remarks += [
                f"Mean prediction error of {name}, a rival: {rival:.2%}."
                for name in table(detail, "predictors")
                if (rival := number(table(table(detail, "predictors"), name), "mean")) is not None
            ]
    return remarks
