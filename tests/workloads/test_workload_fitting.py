"""The fit and the quantile curve against closed forms, and what they refuse."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_npubench.errors import WorkloadError
from pytest_npubench.workloads import PublishedLengths, QuantileCurve, fit
from pytest_npubench.workloads.quantiles import LEVELS

SCORE_P90 = 1.2815515655446004


def curve_from_steps(first: float, steps: list[float]) -> QuantileCurve:
    return QuantileCurve(knots=tuple(np.exp(np.log(first) + np.concatenate(([0.0], np.cumsum(steps))))))


curves = st.builds(
    curve_from_steps,
    st.floats(1, 3000),
    st.lists(st.floats(1e-4, 2.0), min_size=len(LEVELS) - 1, max_size=len(LEVELS) - 1),
)


@settings(max_examples=30, deadline=None)
@given(curves)
def test_integrated_moments_agree_with_a_fine_midpoint_sum(curve):
    levels = np.concatenate([low + (np.arange(4000) + 0.5) * (high - low) / 4000 for low, high in pairwise(LEVELS)])
    weights = np.repeat(np.diff(LEVELS) / 4000, 4000)
    lengths = curve.quantile(levels)
    mean = float(weights @ lengths)
    std = math.sqrt(float(weights @ (lengths - mean) ** 2))
    assert curve.moments() == (pytest.approx(mean, rel=1e-5), pytest.approx(std, rel=1e-4))
    assert curve.lengths(levels).min() >= 1


@settings(max_examples=10, deadline=None)
@given(st.floats(30, 5000), st.floats(0.2, 0.9))
def test_the_figures_of_a_lognormal_give_that_lognormal(median, spread):
    """The smoothest curve is the straight line on lognormal paper, here against scipy-free closed forms."""
    p90 = median * math.exp(spread * SCORE_P90)
    curve = fit(PublishedLengths(mean=median * math.exp(spread**2 / 2), median=median, p90=p90))
    for level, score in ((0.1, -SCORE_P90), (0.25, -0.6744897501960817), (0.75, 0.6744897501960817), (0.9, SCORE_P90)):
        wanted = median * math.exp(spread * score)
        assert curve.knots[LEVELS.index(level)] == pytest.approx(wanted, rel=0.02)


@settings(max_examples=10, deadline=None)
@given(st.floats(100, 1000), st.floats(1.5, 4.0), st.floats(0.9, 1.15))
def test_a_fit_meets_mean_median_and_p90(median, p90_over_median, skew):
    spread = math.log(p90_over_median) / SCORE_P90
    mean = median * math.exp(spread**2 / 2) * skew
    curve = fit(PublishedLengths(mean=mean, median=median, p90=median * p90_over_median))
    assert curve.moments()[0] == pytest.approx(mean, rel=1e-3)
    assert curve.knots[LEVELS.index(0.5)] == pytest.approx(median, rel=1e-3)
    assert curve.knots[LEVELS.index(0.9)] == pytest.approx(median * p90_over_median, rel=1e-3)


def test_figures_that_cannot_be_met_are_refused():
    """At least half the lengths are 1,000 or more, so the mean cannot be 300."""
    with pytest.raises(WorkloadError, match="no length distribution found"):
        fit(PublishedLengths(mean=300, median=1000, p90=1100))


@pytest.mark.parametrize(
    ("figures", "want"),
    [
        ({"mean": 100, "p90": 200}, "want a median or a standard deviation"),
        ({"mean": 100, "p90": 50, "median": 60}, "want the median"),
        ({"mean": 100, "p90": 200, "median": 60, "upper": 150}, "want the median"),
        ({"mean": 100, "p90": 200, "median": 60, "lower": 70}, "want lower < median"),
        ({"mean": 100, "p90": 200, "median": 60, "lower": 0}, "want 1 <= lower"),
        ({"mean": 100, "p90": 200, "std": 0}, "standard deviation > 0"),
        ({"mean": math.nan, "p90": 200, "std": 5}, "want 1 <= lower < mean"),
    ],
)
def test_impossible_figures_are_refused_by_name(figures, want):
    with pytest.raises(WorkloadError, match=want):
        PublishedLengths(**figures)


@pytest.mark.parametrize(
    "knots", [(), (1.0,) * len(LEVELS), tuple(range(len(LEVELS))), (*range(1, len(LEVELS)), math.inf)]
)
def test_knots_that_are_no_curve_are_refused(knots):
    with pytest.raises(WorkloadError, match="knots"):
        QuantileCurve(knots=knots)
