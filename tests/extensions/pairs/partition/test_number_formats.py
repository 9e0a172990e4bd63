"""Bits and the numbers that they stand for, against ml_dtypes and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, row_split
from pytest_npubench.extensions.pairs.partition.number_formats import (
    BF16,
    GROUP,
    W4A16,
    bf16_bits,
    bf16_values,
    decoded,
    quantised,
)
from pytest_npubench.extensions.pairs.partition.output_check import exact_product

from .fake_pair import FakePair


@given(st.lists(st.floats(width=32, allow_nan=False, max_value=2.0**127, min_value=-(2.0**127)), min_size=1))
def test_bfloat16_is_rounded_as_ml_dtypes_rounds_it(values):
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    array = np.array(values, dtype=np.float32)
    np.testing.assert_array_equal(bf16_bits(array), array.astype(bfloat16).view(np.uint16))
    np.testing.assert_array_equal(bf16_values(bf16_bits(array)), array.astype(bfloat16).astype(np.float32))


@given(st.integers(1, 5), st.integers(1, 4), st.floats(1e-3, 1e3), st.integers(0, 2**32 - 1))
def test_four_bits_are_off_by_half_a_step_of_their_group_and_are_bfloat16(rows, groups, size, seed):
    weight = (size * np.random.default_rng(seed).standard_normal((rows, groups * GROUP))).astype(np.float32)
    packed, scales = quantised(weight)
    assert (packed.shape, scales.shape) == ((rows, groups * GROUP // 2), (rows, groups))
    values = decoded(packed, scales)
    steps = np.repeat(bf16_values(scales), GROUP, axis=1)
    assert (np.abs(values - weight) <= steps / 2).all()
    assert (steps <= 2 * np.repeat(np.abs(weight).reshape(rows, groups, GROUP).max(axis=2) / 7, GROUP, axis=1)).all()
    np.testing.assert_array_equal(bf16_values(bf16_bits(values)), values)


def test_two_weights_are_a_byte_the_even_column_in_the_upper_half():
    weight = np.zeros((1, GROUP), np.float32)
    weight[0, :4] = 0.9, 0.3, -0.9, -0.5  # steps of 1/4: 4, 1, -4, -2
    packed, scales = quantised(weight)
    assert bf16_values(scales).tolist() == [[0.25]]
    assert packed[0, :2].tolist() == [(12 << 4) | 9, (4 << 4) | 6]
    assert decoded(packed, scales)[0, :4].tolist() == [1.0, 0.25, -1.0, -0.5]


@pytest.mark.parametrize("dtype", [BF16, W4A16])
def test_writing_bfloat16_passes_and_a_scale_of_another_group_does_not(dtype):
    random = np.random.default_rng(0)
    drawn = random.standard_normal((8, 4 * GROUP), dtype=np.float32) * np.repeat([1, 4, 1, 1], GROUP).astype(np.float32)
    packed, scales = quantised(drawn)
    weight = decoded(packed, scales)
    activation = bf16_values(bf16_bits(random.standard_normal((4 * GROUP, 3), dtype=np.float32)))
    pair = FakePair()
    pair.operands = lambda matmul: (weight, activation)
    matmul = Matmul(name="up", rows=8, cols=4 * GROUP, tokens=3, dtype=dtype)
    exact = exact_product(pair, matmul)
    exact.check(row_split(matmul), bf16_values(bf16_bits(weight @ activation)))
    with pytest.raises(MeasurementError, match=r"up .* computes something else"):
        exact.check(row_split(matmul), bf16_values(bf16_bits(decoded(packed, scales[:, [1, 0, 2, 3]]) @ activation)))
