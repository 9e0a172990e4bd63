"""The shadow path of a product in plain numpy, against which what runs on units and on compiled graphs is held."""

from __future__ import annotations

import numpy as np

from pytest_npubench.engines.quantization import ActivationCalibration, Floats, int8_product, residual


def shadow_product(
    x: Floats, weight: Floats, calibration: ActivationCalibration, channels: tuple[int, ...] | None = None
) -> Floats:
    """Clipped INT8 and the residual of `channels` in float32; None: of every channel that has one."""
    rest = residual(x, calibration)
    kept = np.flatnonzero(rest.any(axis=0)) if channels is None else np.asarray(channels, dtype=np.intp)
    return int8_product(x, weight, calibration.scale) + rest[:, kept] @ weight[kept]
