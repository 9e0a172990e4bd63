"""What speaks against a calibration: scatter and drift of residuals that are made here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.virtual.calibration import Calibration, Prior
from pytest_npubench.extensions.planning.virtual.doubts import LARGEST_DRIFT, LARGEST_SCATTER, LEAST, doubts, untold


def _noise(number: int, scatter: float, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scatter, number)


@given(st.integers(0, 2**32 - 1), st.integers(LEAST, 300), st.floats(0.0, 0.03))
def test_a_run_that_is_explained_is_not_doubted(seed: int, number: int, scatter: float) -> None:
    assert doubts({"tpot": _noise(number, scatter, seed), "e2e": _noise(number, scatter, seed)}) == ()


@given(st.integers(0, 2**32 - 1), st.integers(30, 300), st.sampled_from((0, 1, 2)), st.sampled_from((-1, 1)))
def test_a_third_that_is_off_is_told(seed: int, number: int, third: int, sign: int) -> None:
    off = _noise(number, 0.01, seed)
    np.array_split(off, 3)[third][:] += sign * 2 * LARGEST_DRIFT
    assert any("one third of the run" in words for words in doubts({"tpot": off}))


@pytest.mark.parametrize("name", LARGEST_SCATTER)
def test_scatter_beyond_the_form_is_told(name: str) -> None:
    (words,) = doubts({name: _noise(900, 1.5 * LARGEST_SCATTER[name])})
    assert "does not explain" in words
    assert doubts({name: _noise(900, 0.7 * LARGEST_SCATTER[name])}) == ()


def test_too_few_say_nothing_and_what_is_no_number_does_not_count() -> None:
    assert doubts({"tpot": np.linspace(-1, 1, LEAST - 1)}) == ()
    assert doubts({"tpot": np.concatenate([np.full(50, np.nan), np.linspace(-1, 1, LEAST - 1)])}) == ()


def _calibration(names: tuple[str, ...], beforehand: np.ndarray, left: np.ndarray) -> Calibration:
    """Draws whose covariance is exactly `left`, of factors whose covariance was `beforehand`."""
    number = len(names)
    draws = np.random.default_rng(0).normal(size=(200, number))
    draws -= draws.mean(axis=0)
    draws = np.linalg.solve(np.linalg.cholesky(np.atleast_2d(np.cov(draws, rowvar=False))), draws.T).T
    prior = Prior(names=names, unit_s=np.ones(number), mean=np.zeros(number), covariance=beforehand)
    logs = draws @ np.linalg.cholesky(left).T
    return Calibration(prior=prior, shape=decoder_shape("qwen3-8b"), logs=logs, centre=np.zeros(number))


NAMES = ("fixed_s", "row_s", "context_s")


@pytest.mark.parametrize(
    ("scales", "words"),
    [
        ((0.1, 0.1, 0.1), None),
        ((0.1, 0.1, 0.9), "2 of 3 terms apart: the factors of context_s are"),
        ((0.9, 0.1, 0.9), "1 of 3 terms apart: the factors of fixed_s, context_s are"),
    ],
)
def test_terms_that_requests_do_not_tell_are_named(scales: tuple[float, ...], words: str | None) -> None:
    """So much is left of each standard deviation; the directions of those that are told are the rank."""
    doubts = untold(_calibration(NAMES, np.diag([0.25, 0.04, 0.09]), np.diag(np.square(scales) * [0.25, 0.04, 0.09])))
    assert (words in doubts[0]) if words else doubts == ()


def test_two_terms_of_which_the_sum_is_told_are_one_direction() -> None:
    """Each is known half as badly again as the bound, and only their difference is open."""
    left = np.array([[0.5, -0.49, 0.0], [-0.49, 0.5, 0.0], [0.0, 0.0, 0.01]])
    (words,) = untold(_calibration(NAMES, np.eye(3), left))
    assert "2 of 3 terms apart: the factors of fixed_s, row_s are" in words
