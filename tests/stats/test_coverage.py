"""How many misses chance allows, against scipy's binomial where nothing is shared and by reason where all is."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.coverage import Compared, Share, covered, half_widths, most_misses

MANY = 1e6  # degrees of freedom: variances as good as known


def one(name: object, *, own: float = 0.0, off: float = 0.0) -> Compared:
    """A prediction of 100 s that rests on one value of variance 1."""
    return Compared(
        predicted_s=100.0,
        shares={name: Share(1.0, 1.0, MANY)},
        measured_s=100.0 + off,
        measured_share=Share(-1.0, own, MANY),
    )


@pytest.mark.parametrize(("number", "coverage"), [(12, 0.9), (24, 0.9), (96, 0.9), (24, 0.5)])
def test_without_anything_shared_it_is_the_binomial_bound(number: int, coverage: float) -> None:
    found = most_misses([one(index) for index in range(number)], coverage)
    exact = [stats.binom.ppf(level, number, 1 - coverage) for level in (0.98, 0.995)]
    assert exact[0] <= found <= exact[1]


def test_what_shares_all_of_its_error_may_miss_at_once() -> None:
    assert most_misses([one("same") for _ in range(24)], 0.9) == 24
    assert most_misses([one("same") for _ in range(24)], 0.999) == 0


def test_a_mean_s_own_error_parts_what_is_shared() -> None:
    assert 4 < most_misses([one("same", own=1.0) for _ in range(24)], 0.9) < 24


def test_an_interval_has_the_error_of_both_sides() -> None:
    (half,) = half_widths([one("a", own=3.0)], 0.9)
    assert half == pytest.approx(stats.norm.ppf(0.95) * 2.0, rel=1e-4)
    assert covered(one("a", own=3.0, off=0.99 * half), 0.9)
    assert not covered(one("a", own=3.0, off=1.01 * half), 0.9)


def test_few_degrees_of_freedom_do_not_make_it_miss_more() -> None:
    """Student's t answers for a variance of three samples."""
    few = [
        Compared(
            predicted_s=1.0, shares={index: Share(1.0, 1.0, 2)}, measured_s=1.0, measured_share=Share(-1.0, 1.0, 2)
        )
        for index in range(24)
    ]
    assert most_misses(few, 0.9) <= stats.binom.ppf(0.995, 24, 0.1)


def test_nothing_scatters() -> None:
    exact = Compared.of(predicted_s=0.1 + 0.2, shares={"a": Share(2.0, 0.0, 3)}, samples_s=(0.3, 0.3))
    assert covered(exact, 0.9)
    assert most_misses([exact] * 12, 0.9) == 0
    other = Compared.of(predicted_s=0.3, shares={"a": Share(2.0, 0.0, 3)}, samples_s=(0.301, 0.301))
    assert not covered(other, 0.9)


def test_simulated_campaigns_stay_below_the_bound_as_often_as_it_says() -> None:
    """100 campaigns of 24 batches on three shared values: one in a hundred may be over, six would be wrong."""
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.5, 2.0, (24, 3))
    over = 0
    for _ in range(100):
        values = 1.0 + 0.05 * rng.standard_normal((3, 8))
        found = []
        for row in weights:
            shares = {
                index: Share(float(weight), float(np.var(own, ddof=1) / 8), 7)
                for index, (weight, own) in enumerate(zip(row, values, strict=True))
            }
            truth = float(row.sum())
            samples = truth * (1.0 + 0.05 * rng.standard_normal(8))
            predicted = float(row @ values.mean(axis=1))
            found.append(Compared.of(predicted_s=predicted, shares=shares, samples_s=samples.tolist()))
        over += sum(not covered(item, 0.9) for item in found) > most_misses(found, 0.9)
    assert over <= 5


def test_one_sample_tells_no_error() -> None:
    with pytest.raises(MeasurementError, match="1 samples tell no error"):
        Compared.of(predicted_s=1.0, shares={}, samples_s=(1.0,))
