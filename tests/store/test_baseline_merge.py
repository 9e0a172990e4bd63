"""Two folders accepted apart and merged both ways: equal, nothing lost, and what cannot go together is named."""

import shutil
from dataclasses import replace

import pytest
from accepted_results import CASE, OTHER, accept, accepted_at, result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import BaselineError
from pytest_npubench.store import baseline_changes
from pytest_npubench.store.baseline_changes import move_anchor, reject, rename, reset
from pytest_npubench.store.baseline_merge import merge
from pytest_npubench.store.baselines import Baselines

NEW = "buckets/profile/cpu-small-b4-bucket128"


@pytest.fixture
def folders(tmp_path):
    return tmp_path / "one", tmp_path / "other"


def contents(directory):
    return {path.relative_to(directory): path.read_bytes() for path in directory.glob("*/*.json")} | {
        path.name: path.read_bytes() for path in directory.glob("*.json")
    }


def merged_both_ways(one, other):
    """The merged folder, after both ways were seen to give the same files, and once more to change nothing."""
    copies = [folder.with_name(f"{folder.name} before") for folder in (one, other)]
    for folder, copy in zip((one, other), copies, strict=True):
        shutil.copytree(folder, copy, dirs_exist_ok=True)
    change = merge(one, copies[1])
    merge(other, copies[0])
    assert contents(one) == contents(other)
    assert merge(one, other).paths == merge(one, copies[0]).paths == merge(one, copies[1]).paths == ()
    return change


def session_names(directory, case=CASE):
    (entry,) = (file.cases[case] for file in Baselines.load(directory).files if case in file.cases)
    return [session.session for session in entry.sessions]


def anchors(directory, case=CASE):
    (entry,) = (file.cases[case] for file in Baselines.load(directory).files if case in file.cases)
    return [session.session for session in entry.sessions if session.anchor]


def test_what_two_runners_accepted_apart_is_all_there(folders, key, other_driver):
    one, other = folders
    accept(one, key, result((1.0,)), session="s1", day=1)
    accept(other, key, result((2.0,)), result(case=OTHER), session="s2", day=2)
    accept(one, key, result((3.0,)), session="s3", day=3)
    accept(other, other_driver, result((4.0,)), session="s4", day=4)
    change = merged_both_ways(one, other)
    assert change.sessions == ("s2", "s4")
    assert Baselines.load(one).sessions(CASE, "tbt_s", key, digest="d1") == [[[1.0]], [[2.0]], [[3.0]]]
    assert Baselines.load(one).sessions(CASE, "tbt_s", other_driver, digest="d1") == [[[4.0]]]
    assert Baselines.load(one).sessions(OTHER, "tbt_s", key, digest="d1") == [[[0.5, 0.25]]]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(of=st.lists(st.tuples(st.sampled_from(["one", "other", "both"]), st.sampled_from([CASE, OTHER])), max_size=14))
def test_any_two_folders_merge_to_the_same(tmp_path_factory, key, of):
    root = tmp_path_factory.mktemp("merge")
    one, other = root / "one", root / "other"
    for folder in (one, other):
        folder.mkdir()
    expected = set()
    for number, (where, case) in enumerate(of):
        for folder in (one, other) if where == "both" else (root / where,):
            accept(folder, key, result((float(number + 1),), case=case), session=f"s{number:02}", day=number)
        expected.add((case, f"s{number:02}"))
    merged_both_ways(one, other)
    assert {
        (name, session.session)
        for file in Baselines.load(one).files
        for name, case in file.cases.items()
        for session in case.sessions
    } == expected


def test_the_oldest_eight_anchors_stay_and_a_moved_one_counts(folders, key):
    one, other = folders
    for number in range(1, 13):
        folder = folders[number % 2]
        accept(folder, key, result((float(number),)), session=f"s{number:02}", day=number)
    merged_both_ways(one, other)
    assert anchors(one) == [f"s{number:02}" for number in range(1, 9)]
    move_anchor(other, newest=2)
    merged_both_ways(one, other)
    assert anchors(one) == ["s11", "s12"]


def test_a_session_with_other_samples_or_another_unit_is_refused_and_nothing_written(folders, key):
    one, other = folders
    accept(one, key, result((1.0,)), session="s1")
    accept(other, key, result((2.0,)), session="s1")
    before = contents(one)
    with pytest.raises(BaselineError, match=f"{CASE}: the session s1 stands in both folders, with other samples"):
        merge(one, other)
    accept(other.with_name("third"), key, result((2.0,), unit="ms"), session="s2", day=1)
    with pytest.raises(BaselineError, match=f"{CASE}, metric tbt_s: accepted in 's', lower is better, in one folder"):
        merge(one, other.with_name("third"))
    with pytest.raises(BaselineError, match="nowhere: No such file"):
        merge(one, other.with_name("nowhere"))
    assert contents(one) == before


def test_the_same_session_accepted_by_both_counts_once_from_its_first_time(folders, key):
    one, other = folders
    accept(one, key, result((1.0,)), session="s1", day=2)
    accept(other, key, result((1.0,)), session="s1", day=1)
    assert merged_both_ways(one, other).sessions == ()
    (file,) = Baselines.load(one).files
    assert [session.accepted_at for session in file.cases[CASE].sessions] == [accepted_at(1)]


def test_what_either_rejected_or_reset_does_not_come_back(folders, key):
    one, other = folders
    for folder in folders:
        for number in range(3):
            accept(folder, key, result((1.0 + number,)), result(case=OTHER), session=f"s{number}", day=number)
    reject(one, "s1", reason="hot room")
    reset(other, [CASE], reason="fp8 cache")
    merged_both_ways(one, other)
    assert session_names(one, OTHER) == ["s0", "s2"]
    (file,) = Baselines.load(one).files
    assert (set(file.cases), set(file.rejected), set(file.resets)) == ({OTHER}, {"s1"}, {CASE})


def test_sessions_accepted_after_a_reset_stay_and_so_does_what_they_fixed(folders, key, monkeypatch):
    one, other = folders
    held_to = [replace(result((1.0,)), frozen={"rate_per_s": rate}) for rate in (0.4, 0.2, 0.1)]
    accept(one, key, held_to[0], session="s1", day=1)
    accept(other, key, held_to[1], session="s2", day=2)
    monkeypatch.setattr(baseline_changes, "now", lambda: accepted_at(3))
    reset(other, [CASE], reason="fp8 cache")
    accept(other, key, held_to[2], session="s3", day=4)
    merged_both_ways(one, other)
    assert session_names(one) == ["s3"]
    assert Baselines.load(one).frozen(CASE, key, digest="d1") == {"rate_per_s": 0.1}


def test_of_frozen_values_the_first_count_and_of_two_digests_the_newer(folders, key):
    one, other = folders
    accept(one, key, replace(result(), frozen={"rate": 2.0}), session="s2", day=2)
    accept(other, key, replace(result(), frozen={"rate": 1.0}), session="s1", day=1)
    accept(one, key, result(case=OTHER, digest="d1"), session="s3", day=3)
    accept(other, key, result(case=OTHER, digest="d2"), session="s4", day=4)
    merged_both_ways(one, other)
    assert Baselines.load(one).frozen(CASE, key, digest="d1") == {"rate": 1.0}
    assert session_names(one, OTHER) == ["s4"]


def test_renamings_go_together_or_are_named(folders, key):
    one, other = folders
    for folder in folders:
        accept(folder, key, result(), session="s1")
    rename(one, CASE, NEW)
    rename(other, CASE, NEW)
    accept(other, key, result((2.0,), case=NEW, digest="d9"), session="s2", day=1)  # binds the digest
    merged_both_ways(one, other)
    assert Baselines.load(one).aliases.entries[CASE].case_digest == "d9"
    third = one.with_name("third")
    accept(third, key, result(), session="s1")
    rename(third, CASE, OTHER)
    with pytest.raises(BaselineError, match=f"{CASE} is renamed to {NEW} in one folder and to {OTHER} in the other"):
        merge(one, third)
