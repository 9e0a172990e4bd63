"""Anchor and window: which sessions stay, and how the histories of a case's names become one."""

from datetime import datetime, timedelta, timezone

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.store.accepted_session import AcceptedSession, KeptSamples
from pytest_npubench.store.session_window import continued, joins_anchor, kept, merged

KEPT = {"tbt_s": KeptSamples(processes=((1.0,),), num_measured=(1,))}


def session(number, *, anchor=False, day=None, reason=""):
    at = datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(days=number if day is None else day)
    return AcceptedSession(
        session=f"s{number}",
        accepted_at=at.isoformat(),
        git_revision=None,
        anchor=anchor,
        metrics=KEPT,
        reason=reason,
    )


def numbers(sessions, *, anchor=None):
    return [int(one.session[1:]) for one in sessions if anchor in (None, one.anchor)]


def accepted(count):
    sessions = ()
    for number in range(1, count + 1):
        sessions = kept((*sessions, session(number, anchor=joins_anchor(sessions))))
    return sessions


def test_worked_example():
    sessions = accepted(40)
    assert numbers(sessions) == [*range(1, 9), *range(17, 41)]
    assert numbers(sessions, anchor=True) == [*range(1, 9)]
    by_a_person = (*sessions, session(41, reason="fp8"), session(42, reason="fp8"), session(43))
    assert numbers(kept(by_a_person)) == [41, 42, 43]
    assert numbers(kept((*by_a_person, session(44, reason="fp4")))) == [44]


def test_an_anchor_session_that_goes_is_not_replaced_once_the_window_has_begun():
    young = tuple(one for one in accepted(3) if one.session != "s2")
    assert joins_anchor(young)
    old = tuple(one for one in accepted(10) if one.session != "s2")
    assert not joins_anchor(old)


@settings(max_examples=200)
@given(st.lists(st.booleans(), max_size=60))
def test_what_is_kept_is_the_anchor_and_the_newest_others(anchors):
    sessions = tuple(session(number, anchor=anchor) for number, anchor in enumerate(anchors))
    others = [number for number, anchor in enumerate(anchors) if not anchor]
    gone = others[: max(len(others) - 24, 0)]
    assert numbers(kept(sessions)) == [number for number in range(len(anchors)) if number not in gone]


def test_two_names_are_one_history_in_the_order_of_acceptance():
    old = tuple(session(number, anchor=number < 2) for number in (0, 1, 2, 6))
    new = tuple(session(number, anchor=number == 5) for number in (4, 5, 7))
    found = merged([new, old])
    assert numbers(found) == [0, 1, 2, 4, 5, 6, 7]
    assert numbers(found, anchor=True) == [0, 1, 5]


def test_a_name_that_goes_on_fills_the_anchor_of_the_one_before_and_begins_none():
    later = tuple(session(number, anchor=True) for number in range(10, 15))
    assert numbers(continued(accepted(3), later), anchor=True) == [10, 11, 12, 13, 14]
    assert numbers(continued(accepted(6), later), anchor=True) == [10, 11]
    assert numbers(continued(accepted(9), later), anchor=True) == []
    assert continued((), later) == later


def test_the_window_goes_over_both_names():
    old = tuple(session(number, anchor=number < 5) for number in range(25))
    new = tuple(session(number) for number in range(25, 40))
    assert numbers(merged([old, new])) == [*range(5), *range(16, 40)]


def test_a_clock_that_went_back_leaves_the_order_within_a_name():
    old = (session(0, day=5), session(1, day=1), session(2, day=6))
    assert numbers(merged([old, (session(3, day=7),)])) == [0, 1, 2, 3]
    assert merged([]) == merged([()]) == ()
