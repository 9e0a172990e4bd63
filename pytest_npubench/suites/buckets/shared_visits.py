"""How a round's visits are shared among the profile points and the drawn batches: as the errors of predictions ask.

The error of a drawn batch is ln P - ln M. With the share e_i = a_i m_i / P of a profile point in its prediction
(predictors/band.py has a_i, m_i is the point's mean) and the coefficient of variation c_i of a visit, its variance is
sum_i e_i^2 c_i^2 / n_i + c^2 / n, the last term the batch's own visits. A round is shared out so that the sum of these
variances over all batches is least (stats.allocation.shared_visits): every point once, and those more often of which a
second of visits tells most. TTFT and TBT are figures of their own, so that profile points count a little beside that.

A point of few visits looks steady or noisy by chance: so all count alike at first, and the scatter of a point's own
visits replaces that of all as they become many.

A round takes no longer than it would with like visits to all (campaign/rounds.py). Where the budget allows less than
NUM_ROUNDS of them it is shortened: an interval comes from rounds, and Student's t is 2.13 for 16 rounds, 2.57 for 6.

Worked number: a batch of 100 ms whose prediction rests half on a point of 100 ms and half on one of 25 ms, c of all
alike: w = (1, 0.5, 0.5), so 2, 1 and 2 visits in 350 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import floor
from statistics import fmean, median, stdev

import numpy as np

from pytest_npubench.campaign.points import Measured
from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.allocation import shared_visits
from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.suites.buckets.active import active_visits, prediction_weights
from pytest_npubench.suites.buckets.plan import BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint

NUM_ROUNDS = 16
PRIOR_VISITS = 4
MOST_VISITS = 24  # of a point in a round: a journal keeps each
OWN_SQUARE = 0.05  # of a profile point, for its own case: 0.22 of what a batch's own visits count
LEAST_S = 1e-6  # of a visit, by a clock that saw none


def round_visits(
    plan: BucketPlan, points: Sequence[BucketPoint], measured: Measured, durations_s: Mapping[str, float]
) -> dict[str, int]:
    """How often the next round visits points; those that it leaves out say it themselves."""
    if plan.active_band is not None:
        return active_visits(plan, points, measured, durations_s)
    drawn = [point for point in points if point.requests and not point.warm_up and point.variant is None]
    if not drawn or plan.is_online or plan.is_search or plan.service.pads_as_it_will:
        return {}
    profiled = [point for point in points if point.pure_bucket is not None and point.variant is None]
    chosen = {point.name: point for point in (*profiled, *drawn)}
    seen_s = {name: _seen(measured, name) or (durations_s[name],) for name in chosen}
    means_s = {name: max(fmean(values), LEAST_S) for name, values in seen_s.items()}
    squares = _squared_shares(plan, drawn, means_s)
    if not squares:
        return {}
    costs_s = np.array([means_s[name] for name in chosen])
    weights = np.array([squares[name] ** 0.5 for name in chosen]) * _scatter(tuple(seen_s.values()))
    alike_s = _alike_s(chosen.values(), durations_s)
    others_s = _alike_s((point for point in points if point.name not in chosen), durations_s)
    shared = shared_visits(weights, costs_s, min(alike_s, plan.size.budget_s / NUM_ROUNDS - others_s))
    visits = np.minimum(shared, MOST_VISITS)
    index = len(measured.rounds)
    return {name: floor(num * (index + 1)) - floor(num * index) for name, num in zip(chosen, visits, strict=True)}


def _alike_s(points: Iterable[BucketPoint], durations_s: Mapping[str, float]) -> float:
    """Adds up the seconds of a round of these points, each visited as often as it says."""
    return sum(point.visits(durations_s[point.name]) * durations_s[point.name] for point in points)


def _seen(measured: Measured, name: str) -> tuple[float, ...]:
    return tuple(value for row in measured.rounds for value in row.get(name, ()))


def _squared_shares(plan: BucketPlan, drawn: Sequence[BucketPoint], means_s: Mapping[str, float]) -> dict[str, float]:
    """Adds up e_i^2 of each point over the batches; empty where no time follows from the points so far."""
    squares = dict.fromkeys(means_s, OWN_SQUARE)
    try:
        pairs_s = {name: (mean_s, mean_s) for name, mean_s in means_s.items()}
        predictions = [(batch, *prediction_weights(plan, pairs_s, (batch,))) for batch in drawn]
    except MeasurementError:
        return {}
    for batch, predicted_s, weights in predictions:
        squares[batch.name] = 1.0
        for name, weight in weights.items():
            squares[name] += (weight * means_s[name] / predicted_s) ** 2
    return squares


def _scatter(seen_s: Sequence[Sequence[float]]) -> FloatArray:
    """Returns the coefficient of variation of a visit of each point: what its own visits say and what those of all say
    in the middle, which counts like PRIOR_VISITS of its own."""
    enough = [(stdev(values) / fmean(values)) ** 2 for values in seen_s if len(values) >= PRIOR_VISITS]
    middle = median(enough) if enough else 1.0
    if not middle:
        return np.ones(len(seen_s))
    squares = [
        (len(values) * (stdev(values) / fmean(values)) ** 2 + PRIOR_VISITS * middle) / (len(values) + PRIOR_VISITS)
        if len(values) >= 2
        else middle
        for values in seen_s
    ]
    return np.sqrt(squares)
