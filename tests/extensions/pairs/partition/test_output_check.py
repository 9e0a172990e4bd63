"""Number formats against ml_dtypes, and outputs against float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, Matmul, row_split
from pytest_npubench.extensions.pairs.partition.number_formats import (
    BF16,
    GROUP,
    W4A16,
    bf16_bits,
    bf16_values,
    decoded,
    quantised,
)
from pytest_npubench.extensions.pairs.partition.output_check import ExactProduct, check_split_computes, exact_product

from .fake_pair import FakePair


class Operands(FakePair):
    """Holds these operands, whatever the operator."""

    def __init__(self, weight: np.ndarray, activation: np.ndarray) -> None:
        super().__init__()
        self._held = weight, activation

    def operands(self, matmul: Matmul) -> tuple[np.ndarray, np.ndarray]:
        return self._held


def exact_of(weight: np.ndarray, activation: np.ndarray) -> ExactProduct:
    (rows, cols), tokens = weight.shape, activation.shape[1]
    return exact_product(Operands(weight, activation), Matmul(name="up", rows=rows, cols=cols, tokens=tokens))


@given(st.integers(2, 9), st.integers(1, 400), st.integers(1, 5), st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_float32_passes_in_the_worst_order_of_summation(rows, cols, tokens, seed, scale):
    """One product after the other, where roundings pile up most; numbers of one sign, where none cancel."""
    random = np.random.default_rng(seed)
    weight = (scale * np.abs(random.standard_normal((rows, cols)))).astype(np.float32)
    activation = np.abs(random.standard_normal((cols, tokens))).astype(np.float32)
    output = np.zeros((rows, tokens), dtype=np.float32)
    for column in range(cols):
        output += np.outer(weight[:, column], activation[column]).astype(np.float32)
    exact = exact_of(weight, activation)
    exact.check(row_split(exact.matmul), output)


FAULTS = {
    "an output times 1.05": lambda output, weight, activation: output * np.float32(1.05),
    "a product left out": lambda output, weight, activation: output - np.outer(weight[:, -1], activation[-1]),
    "two rows exchanged": lambda output, weight, activation: output[np.r_[1, 0, 2 : len(output)]],
    "a row of 0": lambda output, weight, activation: output * (np.arange(len(output)) != 1)[:, None],
    "a row not written": lambda output, weight, activation: np.where(
        np.arange(len(output))[:, None] == 1, np.nan, output
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("unit", [GPU, NPU])
@pytest.mark.parametrize("cols", [64, 4096, 14336])
def test_a_fault_is_found_and_its_unit_is_blamed(fault, unit, cols):
    random = np.random.default_rng(cols)
    weight = random.standard_normal((8, cols), dtype=np.float32) / np.float32(cols**0.5)
    activation = random.standard_normal((cols, 16), dtype=np.float32)
    output, exact = weight @ activation, exact_of(weight, activation)
    split = row_split(exact.matmul)
    exact.check(split, output)
    (part,) = split.of(unit)
    rows = slice(part.first_row, part.first_row + part.num_rows)
    output[rows] = fault(output[rows], weight[rows], activation)
    with pytest.raises(
        MeasurementError, match=rf"of the {unit}'s 64 outputs are wrong, such as \S+ in row [{part.first_row}-9]"
    ) as e:
        exact.check(split, output)
    assert ("the npu's" in str(e.value), "the gpu's" in str(e.value)) == (unit == NPU, unit == GPU)


def test_what_the_run_before_left_does_not_pass_for_this_one():
    """A split that writes nothing, behind one that wrote everything."""
    pair, matmul = FakePair(), Matmul(name="up", rows=4, cols=8, tokens=2)
    split = row_split(matmul)
    pair.load(matmul, [split])
    check_split_computes(pair, exact_product(pair, matmul), split)
    timing = pair.timing(matmul, split)
    pair.run = lambda matmul, split, mechanism: timing
    with pytest.raises(MeasurementError, match=r"4 of the gpu's 4 outputs are wrong, such as nan in row 0 of token 0"):
        check_split_computes(pair, exact_product(pair, matmul), split)


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
