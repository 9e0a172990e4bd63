"""What search cases say: what LENS chose, what was best, and what the choice gives up."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.suites.buckets.kinds.batch_search import SearchDetail
from pytest_npubench.verdict.case_record import CaseRecord


def search_lines(found: Sequence[CaseRecord[SearchDetail]]) -> list[str]:
    """One for each case: "LENS chooses batch 8 of 4 for lens-sharegpt, the measured best (regret 0.0%, tau 1.00)"."""
    return [_line(case.detail) for case in found]


def _line(detail: SearchDetail) -> str:
    right = "the measured best" if detail.is_top1 else f"measured best: {detail.best}"
    tau = "" if detail.kendall_tau is None else f", Kendall's tau {detail.kendall_tau:.2f}"
    return (
        f"LENS chooses {detail.chosen} out of {len(detail.choices)} for {detail.workload}, {right} "
        f"(regret {detail.regret:.1%}{tau})"
    )
