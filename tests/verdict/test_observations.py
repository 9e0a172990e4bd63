"""From samples to entries."""

import numpy as np
import pytest

from pytest_npubench.verdict.observations import (
    Rule,
    UnusableError,
    many_entries,
    read_cases,
    session_entries,
)


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
