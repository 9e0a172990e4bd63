import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.multiple_testing import adjusted_p_values

probabilities = st.lists(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.01, 0.05, 1.0])), min_size=1, max_size=40)


def rejected(p_values, q):
    return adjusted_p_values(p_values) <= q


def test_worked_number():
    assert adjusted_p_values([0.01, 0.02, 0.03, 0.20]).tolist() == pytest.approx([0.04, 0.04, 0.04, 0.20])
    assert rejected([0.01, 0.02, 0.03, 0.20], 0.05).tolist() == [True, True, True, False]


def test_the_example_of_the_paper():
    """Benjamini & Hochberg 1995, section 3.2: fifteen p-values, four rejected at 0.05 (Bonferroni rejects three)."""
    p = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344]
    p += [0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.0000]
    assert rejected(p, 0.05).sum() == 4


@given(probabilities)
def test_agrees_with_scipy_and_statsmodels(p_values):
    adjusted = adjusted_p_values(p_values)
    assert adjusted.tolist() == pytest.approx(stats.false_discovery_control(p_values).tolist())
    assert adjusted.tolist() == pytest.approx(multipletests(p_values, method="fdr_bh")[1].tolist())


def test_the_share_of_false_rejections_is_kept():
    rng, shares = np.random.default_rng(11), []
    for _ in range(400):
        p = np.concatenate([rng.uniform(size=80), stats.norm.sf(rng.normal(3, 1, 20))])
        found = rejected(p, 0.1)
        shares.append(found[:80].sum() / max(1, found.sum()))
    assert 0.05 < np.mean(shares) < 0.1  # 0.08 expected: q times the share of true nulls


def test_no_tests_reject_nothing():
    assert adjusted_p_values([]).tolist() == rejected([], 0.05).tolist() == []


@pytest.mark.parametrize("bad", [math.nan, -0.1, 1.1, math.inf])
def test_what_is_no_probability(bad):
    with pytest.raises(MeasurementError, match=r"p_values: value 1 of 2 is .*; want a probability from 0 to 1"):
        adjusted_p_values([0.5, bad])


def test_what_is_no_row():
    with pytest.raises(MeasurementError, match=r"shape \(1, 2\)"):
        adjusted_p_values([[0.1, 0.2]])
