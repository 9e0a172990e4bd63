"""What online cases say: the error of each figure, and what the profile took."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.suites.buckets.kinds.online import OnlineDetail
from pytest_npubench.suites.buckets.report.profile import cost_words
from pytest_npubench.verdict.case_record import CaseRecord


def online_lines(found: Sequence[CaseRecord[OnlineDetail]]) -> list[str]:
    """One for each case: "LENS online, lens-sharegpt at 8.4 req/s on 4 slots: TTFT -1.00% (p99 +2.00%), ..."."""
    return [f"{_errors(case)}; profile: {cost_words([case.detail.cost])}" for case in found]


def _errors(case: CaseRecord[OnlineDetail]) -> str:
    detail = case.detail
    errors = ", ".join(
        f"{name.upper()} {figure.mean_error:+.2%} (p99 {figure.p99_error:+.2%})"
        for name, figure in detail.figures.items()
    )
    return f"LENS online, {detail.workload} at {detail.rate_per_s:.3g} req/s on {case.batch_size} slots: {errors}"
