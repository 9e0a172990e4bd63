import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.variance_parts import VarianceParts, variance_parts

values = st.floats(-10, 10).map(lambda x: round(x, 3))
nested = st.lists(st.lists(st.lists(values, min_size=1, max_size=4), min_size=1, max_size=3), min_size=1, max_size=4)


def draw(rng, shape, session, process, within):
    """Nested normal values; `shape` holds for each session its processes' lengths."""
    return [
        [
            (night + rng.normal(0, math.sqrt(process)) + rng.normal(0, math.sqrt(within), length)).tolist()
            for length in lengths
        ]
        for lengths in shape
        for night in [rng.normal(0, math.sqrt(session))]
    ]


def test_worked_number():
    parts = variance_parts([[(0, 2), (4, 6)], [(10, 12), (14, 16)]])
    assert (parts.session, parts.process, parts.within) == pytest.approx((46, 7, 2))
    assert parts.night_share == pytest.approx(46 / 53)
    assert parts.cut == ()


@settings(max_examples=50)
@given(st.integers(2, 4), st.integers(2, 4), st.integers(2, 4), st.integers(0, 1000))
def test_balanced_closed_form(num_sessions, num_processes, num_samples, seed):
    """The textbook's table for equal numbers: differences of mean squares over the numbers below them."""
    data = np.random.default_rng(seed).normal(size=(num_sessions, num_processes, num_samples))
    inside = data.var(axis=2, ddof=1).mean()
    processes = num_samples * data.mean(axis=2).var(axis=1, ddof=1).mean()
    sessions = num_processes * num_samples * data.mean(axis=(1, 2)).var(ddof=1)
    process = (processes - inside) / num_samples
    session = (sessions - processes) / (num_processes * num_samples)
    parts = variance_parts(data.tolist())
    assert parts.within == pytest.approx(inside)
    assert parts.process == pytest.approx(max(0.0, process), abs=1e-12)
    assert parts.session == pytest.approx(max(0.0, session), abs=1e-12)
    assert parts.cut == tuple(name for name, part in [("session", session), ("process", process)] if part < 0)


def test_agrees_with_a_mixed_model():
    """On balanced data with no negative part, REML and moments coincide (statsmodels MixedLM)."""
    from statsmodels.regression.mixed_linear_model import MixedLM, VCSpec

    rng = np.random.default_rng(3)
    sessions = draw(rng, [[4] * 3] * 6, session=4.0, process=1.0, within=0.5)
    parts = variance_parts(sessions)
    assert not parts.cut
    flat = np.array(sessions).ravel()
    night = np.repeat(np.arange(6), 12)
    process = np.repeat(np.tile(np.arange(3), 6), 4)
    dummies = {n: np.eye(3)[process[night == n]] for n in range(6)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimiser's remarks are not ours
        spec = VCSpec(["process"], [[["a", "b", "c"]] * 6], [[dummies[n] for n in range(6)]])
        model = MixedLM(flat, np.ones(72), groups=night, exog_re=np.ones((72, 1)), exog_vc=spec)
        fitted = model.fit(reml=True)
    assert parts.session == pytest.approx(float(fitted.cov_re[0, 0]), rel=0.01)
    assert parts.process == pytest.approx(float(fitted.vcomp[0]), rel=0.01)
    assert parts.within == pytest.approx(float(fitted.scale), rel=0.01)


@pytest.mark.parametrize("shape", [[[5] * 3] * 4, [[1, 4, 9], [2], [6, 3], [1, 1, 7, 2]]])
def test_known_parts_are_found_on_average(shape):
    """Moments are unbiased for unequal numbers too; cutting at 0 is not, so the parts here are large."""
    rng, draws = np.random.default_rng(4), 4000
    found = [variance_parts(draw(rng, shape, session=9.0, process=4.0, within=1.0)) for _ in range(draws)]
    assert np.mean([p.within for p in found]) == pytest.approx(1.0, rel=0.03)
    assert np.mean([p.process for p in found]) == pytest.approx(4.0, rel=0.08)
    assert np.mean([p.session for p in found]) == pytest.approx(9.0, rel=0.15)


@settings(max_examples=60)
@given(nested, st.floats(-100, 100), st.floats(0.1, 10), st.randoms())
def test_shift_scale_and_order(sessions, shift, scale, random):
    moved = [[[x * scale + shift for x in process] for process in one] for one in sessions]
    for one in moved:
        for process in one:
            random.shuffle(process)
        random.shuffle(one)
    random.shuffle(moved)
    parts, other = variance_parts(sessions), variance_parts(moved)
    for name in ("session", "process", "within"):
        one, two = getattr(parts, name), getattr(other, name)
        assert (one is None) == (two is None)
        if one is not None:
            assert two == pytest.approx(one * scale**2, rel=1e-6, abs=1e-8 * scale**2)


@given(nested)
def test_what_is_estimated_and_what_is_not(sessions):
    parts = variance_parts(sessions)
    assert (parts.session is None) == (len(sessions) == 1)
    assert (parts.process is None) == all(len(one) == 1 for one in sessions)
    assert (parts.within is None) == all(len(process) == 1 for one in sessions for process in one)
    assert all(part is None or part >= 0 for part in (parts.session, parts.process, parts.within))
    assert parts.night_share is None or 0 <= parts.night_share <= 1


def test_one_process_a_session_holds_both():
    parts = variance_parts([[[1.0, 1.0]], [[2.0, 2.0]], [[6.0, 6.0]]])
    assert parts.process is None
    assert parts.night_share is None
    assert parts.session == pytest.approx(np.var([1, 2, 6], ddof=1))


def test_process_medians_have_no_within():
    parts = variance_parts([[[1.0], [2.0]], [[5.0], [6.0]]])
    f = stats.f_oneway([1.0, 2.0], [5.0, 6.0]).statistic  # (process + 2 session) / process in expectation
    assert parts.within is None
    assert parts.process == pytest.approx(0.5)
    assert parts.session == pytest.approx((f - 1) * 0.5 / 2)


def test_a_negative_part_is_cut_and_said():
    parts = variance_parts([[[0.0], [4.0]], [[4.0], [0.0]]])
    assert parts == VarianceParts(session=0.0, process=8.0, within=None, cut=("session",))
    assert parts.night_share == 0.0


def test_large_values_keep_their_digits():
    small = [[(0.0, 2.0), (4.0, 6.0)], [(10.0, 12.0), (14.0, 16.0)]]
    large = [[[x + 1e9 for x in process] for process in one] for one in small]
    assert variance_parts(large) == variance_parts(small)


@pytest.mark.parametrize(
    ("sessions", "message"),
    [
        ([], "sessions: none"),
        ([[[1.0]], []], "session 1 of 2: no processes"),
        ([[[1.0], []]], "session 0, process 1: no values"),
        ([[[1.0, math.nan]]], "session 0, process 0: value 1 of 2 is nan"),
    ],
)
def test_data_that_cannot_be(sessions, message):
    with pytest.raises(MeasurementError, match=message):
        variance_parts(sessions)
