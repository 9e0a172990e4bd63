"""Rotary position embedding (arXiv 2104.09864), for gpt-oss stretched by YaRN (arXiv 2309.00071).

Pair i of a head turns by position x theta^(-2i/D). YaRN divides the slow turns by its factor, keeps the fast ones, and
blends between the pairs that turn 32 times and once over the original context (section 3.2, "NTK-by-parts"); queries
and keys both grow by 0.1 ln(factor) + 1 (section 3.4).

Worked numbers: gpt-oss, theta = 150,000, D = 64: pairs up to 8.09 keep their speed, from 17.4 on they are 32 times
slower; the growth is 0.1 ln 32 + 1 = 1.3466.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pytest_npubench.engines.rope import rope_frequencies
from pytest_npubench.engines.shapes import (
    YARN_BETA_FAST,
    YARN_BETA_SLOW,
    YARN_FACTOR,
    YARN_ORIGINAL_CONTEXT,
    DecoderShape,
)


class Rotation(NamedTuple):
    """Of T tokens: cosines [T, 1, D], and sines [T, 1, D] with the first half negated."""

    cos: Tensor
    sin: Tensor


def inverse_frequencies(shape: DecoderShape, device: torch.device) -> tuple[Tensor, float]:
    """Radians a position for each of the D/2 pairs, in fp32, and the growth of what is rotated."""
    pairs = torch.arange(shape.head_dim // 2, device=device, dtype=torch.float32)
    speeds = shape.rope_theta ** (-2 * pairs / shape.head_dim)
    if shape.rope_scaling is not None:
        return torch.from_numpy(rope_frequencies(shape)).to(device, torch.float32), 1.0
    if shape.architecture != "gpt-oss":
        return speeds, 1.0
    fast, slow = _pair_of(shape, YARN_BETA_FAST), _pair_of(shape, YARN_BETA_SLOW)
    slowed = ((pairs - fast) / (slow - fast)).clamp(0, 1)
    return speeds * (1 - slowed + slowed / YARN_FACTOR), 0.1 * math.log(YARN_FACTOR) + 1


def _pair_of(shape: DecoderShape, num_turns: float) -> float:
    """The pair, as a real number, that turns so often over the original context."""
    pair = (
        shape.head_dim * math.log(YARN_ORIGINAL_CONTEXT / (num_turns * 2 * math.pi)) / (2 * math.log(shape.rope_theta))
    )
    return min(max(pair, 0), shape.head_dim - 1)


def rotation(speeds: Tensor, growth: float, positions: Tensor, dtype: torch.dtype) -> Rotation:
    """What `rotate` needs for tokens at `positions` [T]."""
    angles = positions[:, None, None].float() * speeds
    cos, sin = angles.cos() * growth, angles.sin() * growth
    return Rotation(torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype))


def rotate(heads: Tensor, by: Rotation) -> Tensor:
    """heads [T, N, D], turned; pair i is made of elements i and i + D/2 of a head."""
    return torch.addcmul(heads * by.cos, heads.roll(heads.shape[-1] // 2, -1), by.sin)
