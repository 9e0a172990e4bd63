"""Rotary frequencies of a decoder shape, for all decoders.

Worked number: llama-3.2-1b, pair 31 of 32: 500,000^(-62/64) = 3.01e-6 radians a token, a wavelength of 2.1e6 tokens,
far beyond the original 8192; Llama 3 divides it by 32: 9.4e-8.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pytest_npubench.engines.shapes import DecoderShape

Frequencies = npt.NDArray[np.float64]


def rope_frequencies(shape: DecoderShape) -> Frequencies:
    """Angular frequency of each rotated pair, float64 [head_dim / 2] (arXiv 2104.09864), with Llama 3's stretch.

    Wavelengths beyond the original context are divided by `factor`, short ones kept, those between blended.
    """
    pairs = np.arange(0, shape.head_dim, 2, dtype=np.float64) / shape.head_dim
    frequencies: Frequencies = shape.rope_theta**-pairs
    scaling = shape.rope_scaling
    if scaling is None:
        return frequencies
    wavelength = 2 * math.pi / frequencies
    turns = scaling.original_context / wavelength
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    keep = np.clip(blend, 0.0, 1.0)
    return (1 - keep) * frequencies / scaling.factor + keep * frequencies
