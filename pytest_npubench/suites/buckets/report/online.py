"""What online cases say: the error of each figure, and what the profile took."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.suites.buckets.kinds.online import OnlineDetail
from pytest_npubench.suites.buckets.report.profile import cost_words
from pytest_npubench.verdict.case_record import CaseRecord


def online_lines(found: Sequence[CaseRecord[OnlineDetail]]) -> list[str]:
    """One for each case: "LENS online, lens-sharegpt at 8.4 req/s on 4 slots: TTFT -1.00% (p99 +2.00%), ... in the
    median of 10 rounds; all requests together TTFT ..."."""
    return [f"{_errors(case)}; profile: {cost_words([case.detail.cost])}" for case in found]


def _errors(case: CaseRecord[OnlineDetail]) -> str:
    detail = case.detail
    typical, pooled = (
        ", ".join(f"{name.upper()} {mean:+.2%} (p99 {tail:+.2%})" for name, mean, tail in errors)
        for errors in (
            [(name, one.mean_error, one.p99_error) for name, one in detail.figures.items()],
            [(name, one.pooled_mean_error, one.pooled_p99_error) for name, one in detail.figures.items()],
        )
    )
    return (
        f"LENS online, {detail.workload} at {detail.rate_per_s:.3g} req/s on {case.batch_size} slots: {typical} in the "
        f"median of {detail.num_rounds} rounds; all requests together {pooled}"
    )
