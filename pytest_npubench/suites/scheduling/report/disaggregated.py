"""Prefill and decode in processes of their own beside the policies that have both in one (Table 10)."""

from __future__ import annotations

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import conditions, label
from pytest_npubench.suites.scheduling.kinds.disaggregated import DisaggregatedDetail
from pytest_npubench.suites.scheduling.report.cells import ends, load_name
from pytest_npubench.suites.scheduling.report.settings import Columns, own_cells, reported_row, settings_table
from pytest_npubench.verdict.case_record import CaseRecord

APART = (
    "One process prefills, another decodes, on equal hardware together; a request's keys and values go from one to the "
    "other, which is part of its first gap. The other policies have all of it as one."
)
COLUMNS: Columns = {
    "ttft_mean_s": ("mean TTFT, ms", 1e3, "ttft_mean", 1e3),
    "ttft_p99_s": ("p99 TTFT, ms", 1e3, "ttft_p99", 1e3),
    "tbt_mean_s": ("mean TBT, ms", 1e3, "tbt_mean", 1.0),
    "tbt_p99_s": ("p99 TBT, ms", 1e3, "tbt_p99", 1.0),
}


def apart_table(case: CaseRecord[DisaggregatedDetail]) -> Table:
    rows: list[tuple[str, ...]] = []
    for policy, latencies in case.detail.policies.items():
        rows.append((policy, *own_cells(COLUMNS, latencies)))
        rows += reported_row("10", COLUMNS, f"{policy}, reported", policy=policy)
    note = f"{APART} {_in_words(case)} {label(conditions('10'))}"
    caption = f"Prefill and decode apart: {load_name(case, case.detail.rate_per_s)}"
    return settings_table(caption, note, "policy", COLUMNS, rows)


def _in_words(case: CaseRecord[DisaggregatedDetail]) -> str:
    """The ratios with their intervals, and what was handed over."""
    detail, moved, parts = case.detail, case.detail.handover, []
    for name, interval in (("TBT", detail.tbt_interval), ("TTFT", detail.ttft_interval)):
        if (ratio := case.metric(f"{name.lower()}_apart_over_layered")) is not None:
            parts.append(f"Mean {name}, apart / layered: {ratio.value:.3g}{ends(interval)}.")
    if moved.num_requests and moved.bytes is not None:
        each = number_text.plain(moved.bytes / moved.num_requests / 1e6)
        took = number_text.milliseconds(moved.mean_s)
        parts.append(f"{moved.num_requests:,} requests handed over, {each} MB each, in {took} ms.")
    return " ".join(parts)
