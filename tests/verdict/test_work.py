"""The words for work that differs from what was accepted."""

from __future__ import annotations

from pytest_npubench.verdict.work import differences, work_text


def test_equal_work_has_no_differences() -> None:
    assert differences({"decode steps": 33.0, "FLOP": 1.5e9}, {"FLOP": 1.5e9, "decode steps": 33.0}) == ()


def test_every_difference_is_told_in_words() -> None:
    now = {"decode steps": 17.0, "prefills": 2.0, "moves": 1.0}
    accepted = {"decode steps": 33.0, "prefills": 2.0, "expert loads": 4096.0}
    assert differences(now, accepted) == (
        "decode steps: 17 where 33 were accepted",
        "moves: 1 where none were counted",
        "expert loads: not counted where 4,096 were accepted",
    )


def test_a_difference_behind_the_shown_digits_is_told_in_full() -> None:
    assert differences({"FLOP": 1234567890.0}, {"FLOP": 1234567891.0}) == (
        "FLOP: 1234567890.0 where 1234567891.0 were accepted",
    )


def test_sessions_that_counted_nothing_say_nothing_of_work() -> None:
    assert differences({"decode steps": 17.0}, {}) == ()
    assert differences({}, {"decode steps": 17.0}) == ()


def test_work_is_shown_in_one_line() -> None:
    assert work_text({"decode steps": 33.0, "FLOP": 1.25e12}) == "decode steps 33, FLOP 1.25e+12"
    assert work_text({}) == ""
