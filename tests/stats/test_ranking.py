"""Regret and Kendall's tau of a predicted ranking: worked numbers, scipy, and the bound on the regret."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau

from pytest_npubench.stats.ranking import largest_regret, rank, relative_throughputs

times = st.floats(0.1, 10)


def test_worked_number():
    found = rank([1, 2, 3], [12, 10, 15])
    assert (found.chosen, found.best, found.is_top1) == (0, 1, False)
    assert (found.regret, found.kendall_tau) == pytest.approx((1 / 6, 1 / 3))


def test_one_choice_is_the_best():
    found = rank([2.0], [3.0])
    assert (found.is_top1, found.regret, found.kendall_tau) == (True, 0.0, None)


@given(
    pairs=st.lists(st.tuples(times, times), min_size=2, max_size=9, unique_by=(lambda one: one[0], lambda one: one[1]))
)
def test_tau_is_that_of_scipy(pairs):
    predicted, measured = zip(*pairs, strict=True)
    assert rank(predicted, measured).kendall_tau == pytest.approx(kendalltau(predicted, measured).statistic)


@given(measured=st.lists(times, min_size=1, max_size=9), error=st.floats(0.001, 0.9), data=st.data())
def test_errors_bound_the_regret(measured, error, data):
    predicted = [time * data.draw(st.floats(1 - error, 1 + error)) for time in measured]
    assert -1e-12 <= rank(predicted, measured).regret <= largest_regret(error) + 1e-9


@given(rounds=st.lists(st.tuples(times, times, times), min_size=1, max_size=5), slow=st.floats(0.2, 5))
def test_relative_throughputs_rank_as_the_times_and_a_slow_round_cancels(rounds, slow):
    found = relative_throughputs(list(zip(*rounds, strict=True)))
    for index, row in enumerate(rounds):
        relative = [choice[index] for choice in found]
        assert np.prod(relative) == pytest.approx(1)
        assert [one * time for one, time in zip(relative, row, strict=True)] == pytest.approx(
            [relative[0] * row[0]] * 3
        )
    slower = relative_throughputs([[slow * time for time in choice] for choice in zip(*rounds, strict=True)])
    assert np.allclose(slower, found)
