"""A product with outliers on the emulated NPU: in fp16, in INT8 per tensor, and INT8 with the shadow path of llm.npu.

    fp16       the product as the decoder's graphs have it
    max_min    INT8, the activation's scale from its largest value, outliers included
    clip       INT8, the scale of a profile's other channels: what exceeds it is cut off
    shadow     clip, and what was cut off times the weights, in float32 on the processor (arXiv 2407.05858, 3.3)

# T = tokens, C = channels, R = rows
x uint8 [T, C], weights int8 [C, R] inside -> uint8 [T, R], all symmetric, 0 at ZERO_POINT; scales are per tensor

What goes in is quantised on the processor, as in llm.npu. The NPU gives 8 bits back, by the scale of a profile's
products, where the paper adds 32-bit sums. Its rounding is not the nearest level in 2 to 3 of 100 values, and never
off by more than LEVELS_OFF. Worked numbers, 256 tokens times 2048 x 2048 with 8 outlier channels: fp16 0.0004, max_min
0.123, clip 0.859, shadow 0.0070 of the product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pytest_npubench.engines.outliers import OutlierCase, activation, weight
from pytest_npubench.engines.quantization import (
    LEVELS,
    Floats,
    calibrate,
    int8_product,
    max_min_scale,
    quantize,
    relative_error,
    residual,
)
from pytest_npubench.extensions.compilers.hub.onnx_file import MAX_INSIDE_BYTES, OnnxFile, model_file
from pytest_npubench.extensions.compilers.hub.weights import Array

NUM_OUTLIERS = 8  # llm.npu: 5 to 15 of 2,048 channels
LEVELS_OFF = 1
ZERO_POINT = 128
PROFILE_BATCH = 1
Compiled = Callable[[Array], Array]
"""Runs a compiled graph on its input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductErrors:
    """Relative to the product in float64, Frobenius norms. levels_off: the most by which the NPU's INT8 is off integer
    arithmetic, in levels of its output."""

    fp16: float
    max_min: float
    clip: float
    shadow: float
    levels_off: float


def product_case(num_tokens: int, num_channels: int, num_rows: int) -> OutlierCase:
    return OutlierCase(num_tokens=num_tokens, num_channels=num_channels, num_rows=num_rows, num_outliers=NUM_OUTLIERS)


def product_errors(case: OutlierCase, folder: Path, compiled: Callable[[str, Path], Compiled]) -> ProductErrors:
    """Of graphs that are written below `folder` and made by `compiled`, which is given a name and the file."""
    x, w, profile = activation(case), weight(case), activation(case, batch=PROFILE_BATCH)
    expected = (x.astype(np.float64) @ w.astype(np.float64)).astype(np.float32)
    calibration = calibrate(profile, case.num_outliers)
    half = compiled("fp16", write_fp16(case, folder / "fp16"))(x.astype(np.float16)).astype(np.float32)
    products: dict[str, Floats] = {}
    levels_off = 0.0
    for name, scale in (("max_min", max_min_scale(x)), ("clip", calibration.scale)):
        out_scale = max_min_scale(int8_product(profile, w, scale))
        run = compiled(name, write_int8(case, scale, out_scale, folder / name))
        levels = run((quantize(x, scale).astype(np.int16) + ZERO_POINT).astype(np.uint8)).astype(np.int16) - ZERO_POINT
        exact = np.rint(int8_product(x, w, scale).astype(np.float64) / out_scale).clip(-ZERO_POINT, LEVELS)
        levels_off = max(levels_off, float(np.abs(levels - exact).max()))
        products[name] = levels * np.float32(out_scale)
    shadow = products["clip"] + residual(x, calibration) @ w
    return ProductErrors(
        fp16=relative_error(half, expected),
        **{name: relative_error(own, expected) for name, own in products.items()},
        shadow=relative_error(shadow, expected),
        levels_off=levels_off,
    )


def write_fp16(case: OutlierCase, folder: Path) -> Path:
    """x fp16 [T, C] -> y fp16 [T, R]."""
    value = weight(case).astype(np.float16)
    file = OnnxFile("product-fp16", folder, weights_beside=value.nbytes > MAX_INSIDE_BYTES)
    file.weight("w", value)
    x = file.input("x", "fp16", (case.num_tokens, case.num_channels))
    file.output(file.node("MatMul", x, "w"), "y", "fp16", (case.num_tokens, case.num_rows))
    return model_file(file.save())


def write_int8(case: OutlierCase, x_scale: float, out_scale: float, folder: Path) -> Path:
    """x uint8 [T, C] -> y uint8 [T, R], each ZERO_POINT above its levels."""
    w = weight(case)
    scale = max_min_scale(w)
    file = OnnxFile("product-int8", folder, weights_beside=w.size > MAX_INSIDE_BYTES)
    file.weight("w", quantize(w, scale))
    zero = file.constant(np.array(ZERO_POINT, np.uint8))
    x = file.input("x", "uint8", (case.num_tokens, case.num_channels))
    wide = file.node("DequantizeLinear", x, file.constant(np.array(x_scale, np.float32)), zero)
    weights = file.node(
        "DequantizeLinear", "w", file.constant(np.array(scale, np.float32)), file.constant(np.array(0, np.int8))
    )
    product = file.node("MatMul", wide, weights)
    levels = file.node("QuantizeLinear", product, file.constant(np.array(out_scale, np.float32)), zero)
    file.output(levels, "y", "uint8", (case.num_tokens, case.num_rows))
    return model_file(file.save())
