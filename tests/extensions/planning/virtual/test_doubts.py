"""What speaks against a calibration: scatter and drift of residuals that are made here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.extensions.planning.virtual.doubts import LARGEST_DRIFT, LARGEST_SCATTER, LEAST, doubts


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
