"""From samples to entries; samples that cannot be used never raise and never pass."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.verdict import VerdictKind, judge, judge_jointly, judge_pairs
from pytest_npubench.verdict.observations import (
    Rule,
    UnusableError,
    many_entries,
    read_cases,
    session_entries,
)

from .made_suite import kinds, suite

JUNK = [
    None,
    3.5,
    "abc",
    "",
    [],
    [[]],
    [[math.nan]],
    [[1.0, math.inf]],
    [[-1.0]],
    [[0.0]],
    [["1.0"]],
    ["1.0"],
    [1.0, 2.0],
    [[[1.0]]],
    [[1.0, [2.0]]],
    [[1.0, None]],
    [[1.0], []],
    [[True]],
    [[1 + 2j]],
    [{"a": 1}],
    {"a": 1},
    [[1e200]],
    [SimpleNamespace()],
]


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_tonight_is_invalid_and_harms_nobody_else(junk):
    baseline, current = suite(1, 10)
    current["case-3"] = junk
    verdicts = judge(baseline, current)
    assert verdicts["case-3"].kind is VerdictKind.INVALID
    assert verdicts["case-3"].reason
    assert {verdict.kind for case, verdict in verdicts.items() if case != "case-3"} <= {
        VerdictKind.UNCHANGED,
        VerdictKind.INCONCLUSIVE,
    }


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_in_the_baseline_is_inconclusive(junk):
    baseline, current = suite(1, 3, 5)
    baseline["case-1"][2] = junk
    verdict = judge(baseline, current)["case-1"]
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert verdict.reason.startswith("accepted session 3 of 5: ")


@pytest.mark.parametrize("junk", [None, 3, "abcde", [1.0, 2.0, 3.0], [None] * 4], ids=repr)
def test_a_baseline_that_is_no_list_of_sessions(junk):
    _, current = suite(1, 1)
    assert judge({"case-0": junk}, current)["case-0"].kind is VerdictKind.INCONCLUSIVE


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_among_the_pending_nights_is_missing(junk):
    baseline, current = suite(1, 3, 5)
    clean = judge_jointly(baseline, current, rules=Rule()).verdicts
    assert judge_jointly(baseline, current, rules=Rule(), pending={"case-1": {"n": junk}}).verdicts == clean


def test_reasons_name_the_place():
    def reason(junk):
        return judge({}, {"a": junk})["a"].reason

    assert reason([]) == "no process"
    assert reason([[1.0], [2.0, math.nan]]) == "process 1: sample 1 is not a finite number"
    assert reason([[1.0], [-1.0, -2.0, 3.0]]) == "process 1: its better quartile is -1.5; a ratio needs one above 0"
    assert reason(["slow"]) == "process 0: want a list of numbers, found 'slow'"
    assert reason(7) == "want a list of processes, each a list of numbers"


nested = st.recursive(
    st.none() | st.floats() | st.integers() | st.text(max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(nested, nested, nested)
def test_nothing_raises(accepted, tonight, pending):
    for scale in ("ratio", "difference"):
        judged = judge_jointly(
            {"a": accepted}, {"a": tonight, "b": [[1.0]]}, rules=Rule(scale=scale), pending={"a": pending}
        )
        assert set(judged.verdicts) == {"a", "b"}
        assert judged.verdicts["b"].kind is VerdictKind.NO_BASELINE


@settings(max_examples=100, deadline=None)
@given(nested)
def test_pairs_never_raise(pairs):
    assert set(judge_pairs({"a": pairs}).verdicts) == {"a"}


def test_numbers_of_any_kind_are_numbers():
    import numpy as np

    rows = np.array([[1.0, 1.1, 1.2]])
    baseline = {"a": [rows, rows * 1.01, rows * 0.99], "b": np.stack([rows, rows * 1.01, rows * 0.99])}
    current = {"a": [(1, 1, 2)], "b": rows.astype(np.float32)}
    assert VerdictKind.INVALID not in {verdict.kind for verdict in judge(baseline, current).values()}


def test_a_value_that_would_overflow_spoils_no_other_case():
    baseline, current = suite(2, 10)
    baseline["case-0"] = [[[1e-320]]] * 9 + [[[1e90]]]
    found = judge(baseline, current)
    assert "statistics failed" not in str(found)
    assert set(kinds(found)) == set(current)


def test_entries_are_logs_of_the_better_quartile_turned_and_medians_of_differences():
    session = [[1.0, 4.0, 2.0, 16.0, 32.0], [8.0]]
    assert session_entries(session, "ratio", "lower").tolist() == pytest.approx(np.log([2.0, 8.0]).tolist())
    assert session_entries(session, "ratio", "higher").tolist() == pytest.approx(np.log([1 / 16, 1 / 8]).tolist())
    assert session_entries(session, "difference", "higher").tolist() == [-4.0, -8.0]
    with pytest.raises(UnusableError, match="process 1: sample 0 is not a finite number"):
        session_entries([[1.0], [float("nan")]], "ratio", "lower")


def test_processes_of_many_lengths_are_as_one_by_one():
    rng = np.random.default_rng(1)
    sessions = [[rng.uniform(1, 2, rng.integers(1, 5)).tolist() for _ in range(rng.integers(1, 4))] for _ in range(40)]
    sessions[7], sessions[9] = [[1.0, float("inf")]], [[2, 4], ["3"]]
    together = many_entries(sessions, "difference", "lower")
    for session, entries in zip(sessions, together, strict=True):
        if not isinstance(entries, str):
            assert entries.tolist() == pytest.approx([float(np.median(samples)) for samples in session])
    assert together[7] == "process 0: sample 1 is not a finite number"
    assert together[9] == "process 1: want a list of numbers, found ['3']"


def read(baseline, current, pending=None):
    rules = dict.fromkeys([*current, *baseline], Rule(scale="difference"))
    return read_cases(rules, baseline, pending or {}, {}, current)


def test_sessions_of_a_list_are_named_by_their_age():
    found = read({"a": [[[1.0]], [[2.0]], [[3.0]]], "b": [[[20.0]], [[30.0]]]}, {"a": [[0.0], [4.0]]})
    assert {name: entries.tolist() for name, entries in found["a"].accepted.items()} == {
        "-3": [1],
        "-2": [2],
        "-1": [3],
    }
    assert list(found["b"].accepted) == ["-2", "-1"]
    assert found["a"].current.tolist() == [0.0, 4.0]
    assert found["b"].current is None


def test_sessions_by_name_keep_it():
    (case,) = read({"a": {"n1": [[1.0]], "n2": [[2.0]]}}, {"a": [[0.0]]}, {"a": {"n5": [[5.0]]}}).values()
    assert list(case.accepted) == ["n1", "n2"]
    assert {name: entries.tolist() for name, entries in case.later.items()} == {"n5": [5.0]}
