"""What each chunk size bears, and costs, at one TTFT (Table 2)."""

from __future__ import annotations

from pytest_npubench.reports import number_text
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import conditions, label
from pytest_npubench.suites.scheduling.kinds.chunk_rate import ChunkRateDetail
from pytest_npubench.suites.scheduling.report.cells import UNAVAILABLE, ends, reason, workload_of
from pytest_npubench.suites.scheduling.report.settings import Columns, own_cells, reported_row, settings_table
from pytest_npubench.verdict.case_record import CaseRecord

CHUNK_RATES = (
    "Chunked prefill by chunk size, each at the rate at which half of the requests have their first token within that "
    "limit; the other figures lie between those of the rates that were served."
)
COLUMNS: Columns = {
    "rate_per_s": ("rate, req/s", 1.0, "rate", 1.0),
    "ttft_mean_s": ("mean TTFT, ms", 1e3, "ttft_mean", 1e3),
    "tbt_mean_s": ("mean TBT, ms", 1e3, "tbt_mean", 1.0),
    "tbt_p99_s": ("p99 TBT, ms", 1e3, "tbt_p99", 1.0),
    "expert_load_bytes_per_request": ("expert bytes a request, GB", 1e-9, "expert_load", 1.0),
    "mj_per_prompt_and_output_token": ("energy per prompt and output token, mJ", 1.0, "energy", 1.0),
}
REPORTED_SIZES = (512, 1024, 2048)


def chunk_rate_table(case: CaseRecord[ChunkRateDetail]) -> Table:
    detail, rows = case.detail, []
    for row in detail.rows:
        rate, *others = own_cells(COLUMNS, row)
        rows.append((f"{row.chunk_size_tokens:,} tokens", f"{rate}{ends(row.rate_interval)}", *others))
    if not rows:
        rows = [(f"{size:,} tokens", *[UNAVAILABLE] * len(COLUMNS)) for size in detail.chunk_size_tokens]
    for size in REPORTED_SIZES:
        rows += reported_row("2", COLUMNS, f"{size:,} tokens, reported", chunk_size=size)
    limit = f"At a median TTFT of {number_text.milliseconds(detail.ttft_limit_s)} ms."
    note = f"{limit} {CHUNK_RATES} {_order(case)}{label(conditions('2'))}"
    return settings_table(f"Chunk sizes at one TTFT: {workload_of(case)}", note, "chunk", COLUMNS, rows)


def _order(case: CaseRecord[ChunkRateDetail]) -> str:
    """Which columns go the paper's way; without any, why there are none."""
    if not case.detail.rows:
        return reason(case)
    against = [COLUMNS[name][0] for name, is_so in case.detail.as_published.items() if not is_so]
    return f"Not in the paper's order: {', '.join(against)}. " if against else "All columns are in the paper's order. "
