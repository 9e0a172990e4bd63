"""Rotary frequencies of a decoder shape, for all decoders (arXiv 2104.09864), stretched by Llama 3 or by YaRN.

YaRN divides the slow turns by its factor, keeps the fast ones, and blends between the pairs that turn 32 times and once
over the original context (arXiv 2309.00071, section 3.2, "NTK-by-parts"); queries and keys both grow by
0.1 ln(factor) + 1 (section 3.4).

Worked numbers: llama-3.2-1b, pair 31 of 32: 500,000^(-62/64) = 3.01e-6 radians a token, a wavelength of 2.1e6 tokens,
far beyond the original 8192; Llama 3 divides it by 32: 9.4e-8. gpt-oss, theta = 150,000, D = 64: pairs up to 8.09 keep
their speed, from 17.4 on they are 32 times slower; the growth is 0.1 ln 32 + 1 = 1.3466.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pytest_npubench.engines.shapes import (
    YARN_BETA_FAST,
    YARN_BETA_SLOW,
    YARN_FACTOR,
    YARN_ORIGINAL_CONTEXT,
    DecoderShape,
)

Frequencies = npt.NDArray[np.float64]


def rope_frequencies(shape: DecoderShape) -> Frequencies:
    """Angular frequency of each rotated pair, float64 [head_dim / 2], stretched as the shape has it.

    Llama 3: wavelengths beyond the original context are divided by `factor`, short ones kept, those between blended.
    """
    pairs = np.arange(shape.head_dim // 2)
    frequencies: Frequencies = shape.rope_theta ** (-2.0 * pairs / shape.head_dim)
    if shape.architecture == "gpt-oss":
        fast, slow = _pair_of(shape, YARN_BETA_FAST), _pair_of(shape, YARN_BETA_SLOW)
        slowed = np.clip((pairs - fast) / (slow - fast), 0.0, 1.0)
        frequencies *= 1 - slowed + slowed / YARN_FACTOR
        return frequencies
    scaling = shape.rope_scaling
    if scaling is None:
        return frequencies
    wavelength = 2 * math.pi / frequencies
    turns = scaling.original_context / wavelength
    blend = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    keep = np.clip(blend, 0.0, 1.0)
    return (1 - keep) * frequencies / scaling.factor + keep * frequencies


def rope_growth(shape: DecoderShape) -> float:
    """What queries and keys are multiplied by as they are turned."""
    return 0.1 * math.log(YARN_FACTOR) + 1 if shape.architecture == "gpt-oss" else 1.0


def _pair_of(shape: DecoderShape, num_turns: float) -> float:
    """Returns the pair, as a real number, that turns so often over YaRN's original context."""
    pair = (
        shape.head_dim * math.log(YARN_ORIGINAL_CONTEXT / (num_turns * 2 * math.pi)) / (2 * math.log(shape.rope_theta))
    )
    return min(max(pair, 0), shape.head_dim - 1)
