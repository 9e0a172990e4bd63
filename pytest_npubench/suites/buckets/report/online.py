"""What online cases say: the error of each figure, and what the profile took."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pytest_npubench.suites.buckets.kinds.online import OnlineDetail
from pytest_npubench.suites.buckets.report.profile import cost_words
from pytest_npubench.verdict.case_record import CaseRecord


def online_lines(found: Sequence[CaseRecord[OnlineDetail]]) -> list[str]:
    """One for each case: "LENS online, lens-sharegpt at 8.4 req/s on 4 slots: TTFT -1.00% (p99 +2.00%), ...; in the
    median of 10 rounds TTFT ...; profile: ...; 320 pairs in 94.2 s"."""
    return [
        f"{_errors(case)}; profile: {cost_words([case.detail.cost])}; {case.detail.num_pairs} pairs "
        f"in {case.detail.pairs_s:.1f} s"
        for case in found
    ]


def _errors(case: CaseRecord[OnlineDetail]) -> str:
    detail = case.detail
    pooled = _told((name, one.mean_error, one.p99_error) for name, one in detail.figures.items())
    typical = _told(
        (name, one.round_mean_error, one.round_p99_error)
        for name, one in detail.figures.items()
        if one.round_mean_error is not None and one.round_p99_error is not None
    )
    rounds = f"; in the median of {detail.num_rounds} rounds {typical}" if typical else ""
    return (
        f"LENS online, {detail.workload} at {detail.rate_per_s:.3g} req/s on {case.batch_size} slots: {pooled}{rounds}"
    )


def _told(errors: Iterable[tuple[str, float, float]]) -> str:
    return ", ".join(f"{name.upper()} {mean:+.2%} (p99 {tail:+.2%})" for name, mean, tail in errors)
