"""How a round's visits are shared: shares by finite differences of the errors, seconds as with like visits, more of
what scatters."""

from dataclasses import replace

import numpy as np
import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.suites.buckets.kinds.mean_error import KIND as MEAN_ERROR
from pytest_npubench.suites.buckets.kinds.prediction import prediction_error
from pytest_npubench.suites.buckets.shared_visits import (
    MOST_VISITS,
    NUM_ROUNDS,
    OWN_SQUARE,
    _squared_shares,
    round_visits,
)

from .conftest import cases, measured, seconds, with_size


@pytest.fixture
def points(plan):
    """All that the workloads need, among it moves, which nobody shares out."""
    return MEAN_ERROR.points(cases(plan, "mean_error")[0], plan)


def durations_s(points, plan):
    return {point.name: seconds(point, plan.buckets) for point in points}


def errors(plan, own):
    """ln P - ln M of every drawn batch."""
    found = [prediction_error(plan, own, name) for name in plan.size.workloads]
    return np.log([p / m for one in found for p, m in zip(one.predicted_s, one.measured_s, strict=True)])


def test_the_shares_are_finite_differences_of_the_errors(plan, points):
    """By what one visit's thousandth changes; moves left out, as in the bands."""
    own = measured(points, plan, 1)
    drawn = [batch for name in plan.size.workloads for batch in plan.draws(name)]
    squares = _squared_shares(plan, drawn, {n: t for n, t in durations_s(points, plan).items() if "move" not in n})
    for name, square in squares.items():
        row = {one: tuple(v * (1.001 if one == name else 1.0) for v in values) for one, values in own.rounds[0].items()}
        numeric = ((errors(plan, Measured(rounds=[row])) - errors(plan, own)) / np.log(1.001)) ** 2
        alone = OWN_SQUARE if name.startswith("profile") else 0.0
        assert square == pytest.approx(numeric.sum() + alone, rel=0.1), name  # moves are up to 4 % of a batch here


def test_a_round_takes_what_like_visits_take_or_its_share_of_the_budget(plan, points):
    times_s = durations_s(points, plan)
    alike_s = sum(point.visits(times_s[point.name]) * times_s[point.name] for point in points)
    for budget_s in (1e3, NUM_ROUNDS * alike_s / 2):
        rich = with_size(plan, budget_s=budget_s)
        rounds = []
        for _ in range(40):
            own = round_visits(rich, points, Measured(rounds=rounds), times_s)
            assert min(own.values()) >= 1
            rounds.append({p.name: (times_s[p.name],) * own.get(p.name, p.visits(times_s[p.name])) for p in points})
        spent_s = sum(sum(values) for row in rounds for values in row.values()) / len(rounds)
        assert spent_s == pytest.approx(min(alike_s, budget_s / NUM_ROUNDS), rel=0.02)


def test_what_scatters_is_visited_more_once_that_is_seen(plan, points):
    times_s = durations_s(points, plan)
    noisy, quiet = "batch/long/0", "batch/long/1"

    def row(scatter):
        return {p.name: tuple(times_s[p.name] * (1 + off * scatter(p.name)) for off in (1, -1, 1, -1)) for p in points}

    def often(scatter):
        own = Measured(rounds=[row(scatter)] * 5)
        return round_visits(with_size(plan, budget_s=1e3), points, own, times_s)

    alike = often(lambda name: 0.05)
    own = often(lambda name: 0.2 if name == noisy else 0.05)
    assert own[noisy] > 1.5 * alike[noisy]
    assert own[quiet] <= alike[quiet]


def test_a_point_that_takes_next_to_nothing_is_not_visited_without_end(plan, points):
    times_s = {**durations_s(points, plan), "batch/short/2": 1e-7}
    assert round_visits(with_size(plan, budget_s=1e3), points, Measured(), times_s)["batch/short/2"] == MOST_VISITS


def test_where_nothing_is_predicted_or_requests_are_served_points_say_it_themselves(plan, points):
    times_s = durations_s(points, plan)
    assert set(round_visits(plan, points, Measured(), times_s)) == {p.name for p in points if not p.move}
    profiled = [point for point in points if point.pure_bucket is not None]
    assert round_visits(plan, profiled, Measured(), times_s) == {}
    for other in (replace(plan, is_online=True), replace(plan, is_search=True)):
        assert round_visits(other, points, Measured(), times_s) == {}
    flat = {**times_s, "profile/16/9": times_s["profile/16/1"] / 2}  # a TBT below 0
    assert round_visits(plan, points, Measured(), flat) == {}
