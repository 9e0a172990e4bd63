"""The share of cases held against accepted sessions, counted by hand over records made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npubench.comparison.judged_share import JudgedShare


def record(kind: str, *metrics: tuple[str, str]) -> dict[str, Any]:
    """A case of verdict `kind` whose metrics have (gate, verdict kind), with a reason that names the latter."""
    return {
        "verdict": {"kind": kind, "reason": kind},
        "metrics": {
            f"metric{index}": {"gate": gate, "verdict": {"kind": found, "reason": f"because {found}"}}
            for index, (gate, found) in enumerate(metrics)
        },
    }


def times(kind: str) -> dict[str, Any]:
    return record(kind, ("ratio", kind), ("ratio", kind))


def test_counts_and_the_most_frequent_reason() -> None:
    share = JudgedShare.of([times("unchanged")] * 15 + [times("incomparable")] * 40 + [times("no-baseline")])
    assert (share.num_judged, share.num_judgeable) == (15, 56)
    assert share.lack(15 / 56) is None
    assert share.lack(0.9) == (
        "15 of 56 cases were compared with a baseline, want 90%; "
        "40 of 56 incomparable: because incomparable; 1 more for other reasons"
    )


@pytest.mark.parametrize(
    ("one", "is_judged"),
    [
        (times("regressed"), True),
        (times("inconclusive"), True),
        (times("improved"), True),
        (times("no-baseline"), False),
        (record("failed", ("ratio", "unchanged")), True),  # over an absolute limit, and compared as well
        (record("no-baseline", ("exact", "unchanged"), ("ratio", "no-baseline")), False),
        (record("unchanged", ("ratio", "unchanged"), ("ratio", "invalid")), True),  # a time of 0 beside another
        (record("passed", ("ratio", "invalid")), False),
    ],
)
def test_what_counts_as_judged(one: dict[str, Any], is_judged: bool) -> None:
    share = JudgedShare.of([one])
    assert (share.num_judgeable, share.num_judged) == (1, int(is_judged))


def test_what_has_nothing_to_judge_by_is_not_counted() -> None:
    share = JudgedShare.of([times("unchanged"), times("invalid"), record("passed"), record("passed", ("none", "x"))])
    assert (share.num_judgeable, share.num_judged) == (1, 1)


def test_a_metric_that_was_never_compared_is_not_judged() -> None:
    one = {"verdict": {"kind": "passed", "reason": ""}, "metrics": {"ttft_s": {"gate": "ratio"}}}
    assert JudgedShare.of([one]).unjudged == "1 of 1 not compared: no metric was compared"


def test_a_run_that_looked_at_nothing_lacks_whatever_is_required() -> None:
    assert JudgedShare.of([]).lack(0.01) == "no case could be compared with a baseline; want 1% of them"
