"""INT8 products with outliers: per-tensor scales, clipping, and what clipping leaves over (llm.npu, section 3.3).

    x w = s clamp(round(x / s)) w_q s_w  +  (x - clamp(x, -127 s, 127 s)) w
          static unit, INT8                 the other unit, float32, nonzero in a few channels alone

The paper prints clamp(x / s, -127, 128); 128 is no INT8 value, so both ends are 127 here. A per-tensor max-min scale
takes s from the largest |x|, outliers included, and leaves the other channels few levels.

Worked number: x = (1.0, 100.0), s from the first alone = 1/127: clamp gives 127 and 127, hence 1.0 and 1.0 times the
scale; the residual is (0, 99.0). Max-min: s = 100/127, x / s = (1.27, 127), rounded to 1 and 127: 0.787 and 100.0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.errors import ConfigError, MeasurementError

Floats = NDArray[np.float32]
LEVELS = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationCalibration:
    """What is decided offline from a profile: the scale of the INT8 part, and the channels expected to exceed it."""

    scale: float
    hot_channels: tuple[int, ...]

    @property
    def limit(self) -> float:
        """|x| up to which INT8 holds x."""
        return LEVELS * self.scale


def max_min_scale(x: Floats) -> float:
    """Per-tensor, symmetric: max |x| / 127; 1/127 for a tensor of zeros. Raises MeasurementError: empty, not finite."""
    largest = float(np.abs(finite_tensor("x", x)).max())
    return (largest or 1.0) / LEVELS


def calibrate(profile: Floats, num_hot: int) -> ActivationCalibration:
    """The `num_hot` channels of largest |x| are hot, the scale is max-min over the others.

    profile is [tokens, channels]. Where all are hot the least of them gives the scale, so that what INT8 holds is not
    nothing. Raises ConfigError for num_hot outside 0..channels, MeasurementError for a profile empty or not finite.
    """
    channels = finite_tensor("profile", profile).shape[1]
    if not 0 <= num_hot <= channels:
        raise ConfigError(f"{num_hot} hot channels of {channels}; want between none and all")
    peaks = np.abs(profile).max(axis=0)
    order = np.argsort(-peaks, kind="stable")
    cold_peak = float(peaks[order[min(num_hot, channels - 1)]])
    hot = tuple(sorted(int(index) for index in order[:num_hot]))
    return ActivationCalibration(scale=(cold_peak or 1.0) / LEVELS, hot_channels=hot)


def quantize(x: Floats, scale: float) -> NDArray[np.int8]:
    """round(x / scale), clamped to -127..127."""
    levels: NDArray[np.int8] = np.clip(np.rint(x / np.float32(scale)), -LEVELS, LEVELS).astype(np.int8)
    return levels


def residual(x: Floats, calibration: ActivationCalibration) -> Floats:
    """What the clamp leaves over; zero wherever |x| stays within the limit."""
    return x - np.clip(x, np.float32(-calibration.limit), np.float32(calibration.limit))


def int8_product(x: Floats, weight: Floats, scale: float) -> Floats:
    """[tokens, rows] of x [tokens, channels] and weight [channels, rows], both in INT8, summed exactly."""
    weight_scale = max_min_scale(weight)
    exact = quantize(x, scale).astype(np.float64) @ quantize(weight, weight_scale).astype(np.float64)
    return (exact * (scale * weight_scale)).astype(np.float32)


def relative_error(output: Floats, reference: Floats) -> float:
    """|output - reference| / |reference|, Frobenius norms; of numbers, no statement on any model's accuracy.

    0 where both are zero. Raises MeasurementError for shapes that differ, a value not finite, a reference of zeros.
    """
    if output.shape != reference.shape:
        raise MeasurementError(f"an output of shape {output.shape} against a reference of {reference.shape}")
    wide = finite_tensor("reference", reference).astype(np.float64)
    off = float(np.linalg.norm(finite_tensor("output", output).astype(np.float64) - wide))
    size = float(np.linalg.norm(wide))
    if size == 0 and off > 0:
        raise MeasurementError("the reference is zero everywhere; an error relative to it has no meaning")
    return off / size if size else 0.0


def finite_tensor(name: str, values: Floats) -> Floats:
    """The tensor itself. Raises MeasurementError where it is empty or holds a NaN or an infinity, naming the place."""
    if not values.size:
        raise MeasurementError(f"{name} of shape {values.shape} is empty")
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        first = tuple(int(index) for index in bad[0])
        raise MeasurementError(f"{name}{list(first)} is {values[first]}; {len(bad)} of {values.size} are not finite")
    return values
