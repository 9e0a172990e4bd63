"""From samples to the table."""

import numpy as np
import pytest

from pytest_npubench.verdict.observations import (
    UnusableError,
    make_table,
    many_entries,
    read_cases,
    repeats_of,
    session_entries,
)


def table(baseline, current):
    return make_table(read_cases(baseline, current, {}, "difference", "lower"))


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


def test_a_session_is_the_mean_of_its_processes():
    found = table({"a": [[[1.0], [3.0]], [[4.0]]]}, {"a": [[5.0], [7.0], [8.0]]})
    assert found.baseline.tolist() == [[2.0, 4.0]]
    assert found.current.tolist() == [[5.0, 7.0, 8.0]]
    assert found.num_processes.tolist() == [1.5]
    assert (found.repeats.tolist(), found.repeats_freedom.tolist()) == ([0.5], [1.0])  # 7 and 8 about their mean


def test_lists_are_aligned_at_their_newest():
    found = table({"a": [[[1.0]], [[2.0]], [[3.0]]], "b": [[[20.0]], [[30.0]]]}, {"a": [[0.0]], "b": [[0.0]]})
    assert found.baseline.tolist()[0] == [1.0, 2.0, 3.0]
    assert np.isnan(found.baseline[1, 0])
    assert found.baseline[1, 1:].tolist() == [20.0, 30.0]


def test_named_sessions_are_merged_in_the_order_accepted():
    """A shorter history that reaches further back, or has sessions between, keeps its order in the columns."""
    late = {name: [[float(number)]] for number, name in enumerate("cdefg")}
    early = {"a": [[10.0]], "b": [[11.0]], "d": [[12.0]], "x": [[13.0]], "e": [[14.0]]}
    found = table({"late": late, "early": early}, {"late": [[0.0]], "early": [[0.0]]})
    present = np.isfinite(found.baseline)
    assert found.baseline[1][present[1]].tolist() == [10.0, 11.0, 12.0, 13.0, 14.0]
    assert found.baseline[0][present[0]].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert np.flatnonzero(present.all(axis=0)).size == 2  # d and e are of both


def test_repeats_leave_the_first_process_out():
    squares, freedom = repeats_of(np.array([[9.0, 1.0, 3.0], [9.0, 1.0, np.nan], [9.0, np.nan, np.nan]]))
    assert squares.tolist() == [2.0, 0.0, 0.0]
    assert freedom.tolist() == [1.0, 0.0, 0.0]
