"""The parts of a layer against values calculated by hand, and every named shape's frequencies against the oracle."""

from __future__ import annotations

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

from pytest_npubench.engines.jax_dense.layers import rms_norm, rope, rope_frequencies
from pytest_npubench.engines.shapes import SHAPES, DecoderShape, RopeScaling

from . import oracle
from .decoders import NORMED, STRETCHED, TIED

ROPE_OF_8 = dataclasses.replace(TIED, head_dim=8, rope_theta=10_000.0)  # frequencies 1, 0.1, 0.01, 0.001


def test_rope_frequencies_by_hand() -> None:
    assert rope_frequencies(ROPE_OF_8) == pytest.approx([1.0, 0.1, 0.01, 0.001])


def test_llama3_scaling_by_hand() -> None:
    """Wavelengths 6.283, 62.83, 628.3, 6283 turn 300, 30, 3.0001 and 0.3 times in 1885 positions.

    Above 5 turns a frequency is kept, below 1 divided by 4; 3.0001 lies halfway: 0.5 * 0.01 / 4 + 0.5 * 0.01 = 0.00625.
    """
    scaling = RopeScaling(factor=4.0, low_freq_factor=1.0, high_freq_factor=5.0, original_context=1885)
    shape = dataclasses.replace(ROPE_OF_8, rope_scaling=scaling)
    assert rope_frequencies(shape) == pytest.approx([1.0, 0.1, 0.00625, 0.00025], rel=1e-4)


def test_llama_3_2_scaling_by_hand() -> None:
    """theta 500000, 32 pairs, context 8192, factor 32. Pair 15: 500000 ** (-30 / 64) = 2.13110e-3, wavelength 2948.3,

    2.7785 turns, so (2.7785 - 1) / 3 = 0.59284 of it is kept: 0.40716 * 2.13110e-3 / 32 + 0.59284 * 2.13110e-3.
    """
    frequencies = rope_frequencies(SHAPES["llama-3.2-1b"])
    assert frequencies[0] == 1.0
    assert frequencies[15] == pytest.approx(1.29052e-3, rel=1e-4)
    assert frequencies[31] == pytest.approx(math.exp(-math.log(500_000) * 62 / 64) / 32)


WITHOUT_YARN = [shape for shape in SHAPES.values() if shape.architecture != "gpt-oss"]


@pytest.mark.parametrize("shape", [*WITHOUT_YARN, TIED, STRETCHED, NORMED], ids=lambda shape: shape.name)
def test_frequencies_are_the_oracles(shape: DecoderShape) -> None:
    want = [oracle.frequency(shape, pair) for pair in range(shape.head_dim // 2)]
    np.testing.assert_allclose(rope_frequencies(shape), want, rtol=1e-12)


def test_the_small_shape_meets_all_three_cases() -> None:
    """Otherwise comparing tokens with the oracle would not test the scaling."""
    ratios = rope_frequencies(STRETCHED) / rope_frequencies(dataclasses.replace(STRETCHED, rope_scaling=None))
    assert (ratios == 1).sum() == 1
    assert ((ratios > 1 / 8 + 1e-9) & (ratios < 1)).sum() == 2
    assert (np.abs(ratios - 1 / 8) < 1e-9).sum() == 5


def test_rope_rotates_halves_by_hand() -> None:
    """D = 4: pairs (0, 2) and (1, 3), frequencies 1 and 0.1.

    cos 2 = -0.41615, sin 2 = 0.90930, cos 0.5 = 0.87758, sin 0.5 = 0.47943.
    Pair (0, 2) of position 2 holds (1, 0) and turns to (cos 2, sin 2); pair (1, 3) of position 5 holds (0, 1) and turns
    to (-sin 0.5, cos 0.5).
    """
    x = jnp.asarray([[[[1.0, 0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 1.0]]]])  # [1, 2, 1, 4]
    turned = rope(x, jnp.asarray([[2, 5]]), np.array([1.0, 0.1]))
    want = [[-0.41615, 0.0, 0.90930, 0.0], [0.0, -0.47943, 0.0, 0.87758]]
    np.testing.assert_allclose(turned[0, :, 0], want, atol=1e-5)


def test_rms_norm_by_hand() -> None:
    """rms(3, 4) = sqrt(12.5) = 3.53553; with eps = 3.5 it is 4: (3, 4) / 4 * (1, 2) = (0.75, 2)."""
    x, weight = jnp.asarray([3.0, 4.0]), jnp.asarray([1.0, 2.0])
    np.testing.assert_allclose(rms_norm(x, weight, 0.0), [0.848528, 2.262742], rtol=1e-6)
    np.testing.assert_allclose(rms_norm(x, weight, 3.5), [0.75, 2.0], rtol=1e-6)


def test_rms_norm_squares_in_float32() -> None:
    """The square of 1000 overflows float16, whose largest number is 65504."""
    normed = rms_norm(jnp.full(4, 1000.0, jnp.float16), jnp.ones(4, jnp.float16), 1e-5)
    assert normed.dtype == jnp.float16
    np.testing.assert_allclose(np.asarray(normed, np.float32), 1.0)
