"""What differs between two stacks, and which sessions may stand against which."""

import pytest

from pytest_npubench.comparison.sides import Side, SideSession, apart
from pytest_npubench.comparison.stack_changes import alike_but_for, split, stack_changes
from pytest_npubench.errors import ConfigError


def session(name, day=1, whole=True, cases=("buckets/profile/a",), **facts):
    known = {"accelerator": "H200", "device_class": "SXM", "driver": "570.86", "runtime": "jax 0.9", **facts}
    return SideSession(
        name=name,
        ids=frozenset([name]),
        started_at=f"2026-11-{day:02}T00:00:00+00:00",
        facts={key: value for key, value in known.items() if value is not None},
        whole=whole,
        observations={(case, "tbt_s"): None for case in cases},
        invalid={},
    )


def side(*sessions):
    return Side(label="journal", sessions=sessions)


def names(side):
    return [session.name for session in side.sessions]


def test_every_fact_that_differs_is_said_and_no_other():
    old = [session("a", jaxlib="0.9.2", torch="2.4"), session("b", jaxlib="0.9.2", torch="2.4")]
    new = [session("c", driver="580.12", jaxlib="0.10.2", libtpu="0.1")]
    assert stack_changes(old, new) == (
        "driver 570.86 -> 580.12",
        "jaxlib 0.9.2 -> 0.10.2",
        "torch 2.4 -> not there",
        "libtpu not there -> 0.1",
    )
    assert stack_changes(old, old) == ()


def test_several_values_of_one_side_are_all_counted():
    old = [session("a", host="one"), session("b", host="two")]
    new = [session("c", host="two")]
    assert stack_changes(old, new) == ("host one, two -> two",)
    many = [session(f"n{number}", git_revision=str(number)) for number in range(9)]
    assert stack_changes(many, [session("c", git_revision="z")]) == ("git_revision 0, 1 and 7 more -> z",)


def test_a_source_that_does_not_tell_a_fact_says_nothing_of_it():
    """A baseline file knows no libraries: that is no sign that there are none."""
    old = [session("a", whole=False)]
    new = [session("b", driver="580.12", jaxlib="0.10.2")]
    assert stack_changes(old, new) == ("driver 570.86 -> 580.12",)


def test_split_takes_the_oldest_value_against_the_newest():
    sessions = [session("a", 1), session("b", 2, driver="575.1"), session("c", 3, driver="580.12"), session("d", 4)]
    old, new = split(side(*sessions), ["driver"])
    assert (names(old), names(new)) == (["a", "d"], ["c"])
    assert (old.label, new.label) == ("driver 570.86", "driver 580.12")
    assert old.notes == ("sessions of driver 575.1 are left out",)
    old, new = split(side(*sessions), ["driver"], "575.1")
    assert (names(old), names(new)) == (["b"], ["c"])
    old, new = split(side(*sessions), ["driver"], None, "575.1")
    assert (names(old), names(new)) == (["a", "d"], ["b"])
    old, new = split(side(*sessions), ["driver"], "580.12", "570.86")
    assert (names(old), names(new)) == (["c"], ["a", "d"])


def test_split_by_two_parts_and_by_a_library_that_came_later():
    sessions = [session("a"), session("b", 2, driver="580.12"), session("c", 3, driver="580.12", runtime="jax 0.10")]
    old, new = split(side(*sessions), ["driver", "runtime"])
    assert (names(old), names(new)) == (["a"], ["c"])
    old, new = split(side(session("a"), session("b", 2, libtpu="0.1")), ["libtpu"])
    assert (names(old), names(new)) == (["a"], ["b"])


@pytest.mark.parametrize(
    ("by", "values", "message"),
    [
        (["driver"], {}, "every session has driver 570.86; want two values"),
        (["driver"], {"old": "555"}, "no session has driver 555; there are 570.86"),
        (["drivr"], {}, "--by drivr: no such part of a stack; there are accelerator, device_class, driver, runtime"),
    ],
)
def test_what_cannot_be_split(by, values, message):
    with pytest.raises(ConfigError, match=message):
        split(side(session("a"), session("b", 2)), by, **values)


def test_the_rest_of_the_stack_must_hold_still():
    """The driver came with jax 0.10 already there: nights on jax 0.9 say nothing of the driver."""
    old = side(session("a", 1), session("b", 2, runtime="jax 0.10"))
    new = side(session("c", 3, driver="580.12", runtime="jax 0.10"))
    kept, same = alike_but_for(old, new, ["driver"])
    assert (names(kept), names(same)) == (["b"], ["c"])
    assert kept.notes == ("left out: 1 session of journal, of whose stack more differs",)


def test_of_several_groups_the_newest_of_each_device_class():
    def pair(name, day, **facts):
        return session(name, day, **facts), session(f"{name}'", day + 1, driver="580.12", **facts)

    pairs = [pair("x", 1), pair("y", 3, runtime="jax 0.10"), pair("z", 5, device_class="PCIe")]
    old, new = alike_but_for(side(*(one for one, _ in pairs)), side(*(two for _, two in pairs)), ["driver"])
    assert (names(old), names(new)) == (["y", "z"], ["y'", "z'"])


def test_two_stacks_of_one_device_are_compared_both():
    """jax measures one suite and torch another; the driver below them is one. A newer jax takes the older one's place,
    but for a case that it no longer has on both sides."""
    old = side(
        session("jax 1", 1, cases=("a", "b")),
        session("new jax 1", 2, runtime="jax 0.10", cases=("a",)),
        session("torch 1", 3, runtime="torch 2", cases=("c",)),
    )
    new = side(
        session("jax 2", 4, driver="580.12", cases=("a", "b")),
        session("new jax 2", 5, driver="580.12", runtime="jax 0.10", cases=("a", "b")),
        session("torch 2", 6, driver="580.12", runtime="torch 2", cases=("c", "d")),
    )
    old, new = alike_but_for(old, new, ["driver"])
    cases = [{one.name: sorted(case for case, _ in one.observations) for one in side.sessions} for side in (old, new)]
    assert cases == [
        {"jax 1": ["b"], "new jax 1": ["a"], "torch 1": ["c"]},
        {"jax 2": ["b"], "new jax 2": ["a"], "torch 2": ["c", "d"]},
    ]
    assert (old.notes, new.notes) == ((), ())


def test_what_changed_together_is_named():
    with pytest.raises(ConfigError, match=r"alone: so does runtime jax 0\.9 -> jax 0\.10; name these parts with --by"):
        alike_but_for(side(session("a")), side(session("b", driver="580.12", runtime="jax 0.10")), ["driver"])


def test_sessions_of_both_sides_count_once():
    """Of B where B is a part of A, such as its last session; else of A, such as a folder of baselines."""
    whole, last = side(session("a"), session("b", 2)), side(session("b", 2))
    old, new = apart(whole, last)
    assert (names(old), names(new)) == (["a"], ["b"])
    assert old.notes == ("on both sides, counted in B: 1 session",)
    old, new = apart(last, whole)
    assert (names(old), names(new)) == (["b"], ["a"])
    assert new.notes == ("on both sides, counted in A: 1 session",)
    assert apart(side(session("a")), last)[1].notes == ()
    with pytest.raises(ConfigError, match="hold the same sessions"):
        apart(whole, whole)
