"""The count of what was said, on a night made by hand: one alarm, one miss, one wrong word, one loss, one stray."""

from __future__ import annotations

from typing import Any

from .play import Played
from .script import BUILDING, CASES, QUIET, Night, Truth, expected
from .tally import table, tally

SLOWER = Night(title="+10 %", factors={CASES[1]: 1.10})
NIGHTS = (BUILDING, BUILDING, BUILDING, QUIET, SLOWER)


def record(kind: str, mde: float | None = 0.05) -> dict[str, Any]:
    verdict = {"kind": kind, "reason": "by hand", "mde": mde}
    return {"verdict": verdict, "metrics": {"ttft_s": {"verdict": verdict}, "tbt_s": {"verdict": verdict}}}


def played(kinds: dict[str, str], on_branch: dict[str, int], status: int, mde: float | None = 0.05) -> Played:
    return Played(
        night=SLOWER,
        number=5,
        runner="a",
        status=status,
        output="",
        sessions=("s",),
        records={case: record(kind, mde) for case, kind in kinds.items()},
        on_branch=on_branch,
        took_s=1.0,
    )


RIGHT = {**dict.fromkeys(CASES, "unchanged"), CASES[1]: "regressed"}
HELD = {case: 5 for case in CASES if case != CASES[1]}


def test_the_truth_of_a_slower_case() -> None:
    *_, before, truth = expected(NIGHTS)
    assert set(before.truths.values()) == {Truth.SAME}
    assert before.is_green
    assert [case for case, right in truth.truths.items() if right is Truth.SLOWER] == [CASES[1]]
    assert not truth.is_green
    assert {case: truth.num_accepted[case] for case in HELD} == HELD
    assert truth.num_accepted[CASES[1]] == 4


def test_a_night_that_is_right_has_no_fault() -> None:
    (row,) = tally([played(RIGHT, HELD, 1)], list(expected(NIGHTS))).values()
    assert row.faults == []
    assert (row.num_cases, row.num_slower, row.num_promised, row.num_found) == (12, 1, 1, 1)
    assert table({"": row}).splitlines()[-1] == "| **all** | 1 | 12 verdicts | 1 of 1 | 0 | 0 | 11 of 11 |"


def test_each_kind_of_fault_is_counted_once() -> None:
    kinds = {**RIGHT, CASES[0]: "regressed", CASES[1]: "inconclusive", CASES[2]: "incomparable"}
    del kinds[CASES[3]]
    held = {**HELD, CASES[1]: 5, CASES[4]: 4}
    del held[CASES[0]]
    (row,) = tally([played(kinds, held, 0)], list(expected(NIGHTS))).values()
    assert [len(row.alarms), len(row.misses), len(row.wrong)] == [1, 1, 2]
    assert [len(row.lost), len(row.strays), len(row.statuses)] == [2, 1, 1]
    assert (row.num_promised, row.num_found) == (1, 0)
    assert table({"": row}).splitlines()[-1] == "| **all** | 1 | 11 verdicts | 0 of 1 | 1 | 4 | 9 of 11 |"


def test_what_could_not_have_been_seen_was_not_promised() -> None:
    for mde in (0.12, None):
        (row,) = tally([played(RIGHT, HELD, 1, mde)], list(expected(NIGHTS))).values()
        assert (row.num_slower, row.num_promised) == (1, 0)
