"""The share of cases held against accepted sessions, counted by hand over records made by hand."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_npubench.comparison.judged_share import JudgedShare, smallest_seen


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


def test_what_a_night_could_have_seen_is_said_suite_by_suite() -> None:
    def night(suite: str, *seen: float | None, kind: str = "inconclusive", gate: str = "ratio") -> dict[str, Any]:
        verdicts = [{"kind": kind, "reason": "", "mde": mde} for mde in seen]
        metrics = {f"m{place}": {"gate": gate, "verdict": verdict} for place, verdict in enumerate(verdicts)}
        return {"case": f"{suite}/kind/id", "verdict": {"kind": kind, "reason": ""}, "metrics": metrics}

    records = [
        night("buckets", 0.031, 0.012, None),
        night("buckets", 0.12, kind="unchanged"),
        night("buckets", 9.0, kind="no-baseline"),
        night("buckets", 0.5, gate="difference"),
        night("own", 1.5),
    ]
    assert smallest_seen(records) == (
        "smallest slowdown that this session would have found: buckets 3.1 % in half of 3 metrics, 12 % in all; "
        "own nothing below x2 in half of 1 metric, nothing below x2 in all"
    )
    assert smallest_seen([]) == ""
