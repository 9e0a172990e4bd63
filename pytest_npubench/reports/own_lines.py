"""What the summary says of tests of one's own with short calls: what loop, clock and calling take of them."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports.record_fields import Record, number, suite_of, table, text


def own_lines(records: Sequence[Record]) -> list[str]:
    """One line, for the calls that were timed several to a sample; none where there are none."""
    shares = [(share, text(record, "id")) for record in records if (share := _overhead_fraction(record)) is not None]
    if not shares:
        return []
    share, case = max(shares)
    cases = "1 case" if len(shares) == 1 else f"{len(shares)} cases"
    return [
        f"several calls a sample: {cases}; an empty call in the same loop takes at most {share:.1%} of one ({case})"
    ]


def _overhead_fraction(record: Record) -> float | None:
    detail, measured_s = table(record, "detail"), number(record, "measured_s")
    iterations, overhead_s = number(detail, "iterations"), number(detail, "overhead_s")
    if suite_of(record) != "own" or not measured_s or overhead_s is None or not iterations or iterations == 1:
        return None
    return overhead_s / measured_s
