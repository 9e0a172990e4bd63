"""The numbers that an operator is made of, as bits in memory that both units read.

    fp32    weight, activation and output in float32
    bf16    all three in bfloat16 (uint16 bits)
    w4a16   weight in 4 bits with a scale for each GROUP columns of a row, activation and output in bfloat16

A 4-bit weight is (q - 8) * scale, q from 0 to 15; two of them are a byte, the even column in its upper half. Scales are
powers of two, as the E8M0 scales of OCP's microscaling formats are: so a dequantised weight is a bfloat16 without
rounding, and the check against float64 is as sharp as that of bf16.

Worked number: weights up to 0.9 in a group: 0.9 / 7 is 0.129, so the scale is 1/4; 0.3 is q = 9 and counts as 0.25.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FP32, BF16, W4A16 = "fp32", "bf16", "w4a16"
DTYPES = (FP32, BF16, W4A16)
GROUP = 128  # columns of one scale
RESULT_BYTES = {FP32: 4, BF16: 2, W4A16: 2}  # of one number of an output
ROUNDOFF = {FP32: 0.0, BF16: 2.0**-8, W4A16: 2.0**-8}
"""The relative error of writing an output, beyond that of summing it in float32."""

Floats = NDArray[np.float32]
Bits = NDArray[np.uint16]


def bf16_bits(values: Floats) -> Bits:
    """Rounded to the nearest, ties to even."""
    bits = values.view(np.uint32)
    rounded: Bits = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return rounded


def bf16_values(bits: Bits) -> Floats:
    values: Floats = (bits.astype(np.uint32) << 16).view(np.float32)
    return values


def quantised(weight: Floats) -> tuple[NDArray[np.uint8], Bits]:
    """[rows, cols] -> two weights a byte [rows, cols / 2], scales in bfloat16 [rows, cols / GROUP]."""
    groups = weight.reshape(len(weight), -1, GROUP)
    scales = np.exp2(np.ceil(np.log2(np.abs(groups).max(axis=2) / 7))).astype(np.float32)
    steps = np.rint(groups / scales[..., None]).astype(np.int8) + 8
    pairs = steps.reshape(len(weight), -1, 2).astype(np.uint8)
    return pairs[..., 0] << 4 | pairs[..., 1], bf16_bits(scales)


def steps_of(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[rows, cols / 2] -> [rows, cols], 0 to 15."""
    return np.stack((packed >> 4, packed & 15), axis=-1).reshape(len(packed), -1)


def decoded(array: NDArray[Any], scales: Bits | None = None) -> Floats:
    """Returns the numbers that bits stand for; `scales` where they are 4-bit weights. Of float32 a copy."""
    if array.dtype == np.uint16:
        return bf16_values(array)
    if scales is None:
        return np.array(array)
    steps = steps_of(array).astype(np.float32) - 8
    return (steps.reshape(*scales.shape, GROUP) * bf16_values(scales)[..., None]).reshape(steps.shape)
