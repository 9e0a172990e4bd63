"""Rotary position embedding (engines/rope.py) on a device: pair i of a head turns by position x frequency_i."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from pytest_npubench.engines.rope import rope_frequencies, rope_growth
from pytest_npubench.engines.shapes import DecoderShape


class Rotation(NamedTuple):
    """Of T tokens: cosines [T, 1, D], and sines [T, 1, D] with the first half negated."""

    cos: Tensor
    sin: Tensor


def inverse_frequencies(shape: DecoderShape, device: torch.device) -> tuple[Tensor, float]:
    """Radians a position for each of the D/2 pairs, in fp32, and the growth of what is rotated."""
    return torch.from_numpy(rope_frequencies(shape)).to(device, torch.float32), rope_growth(shape)


def rotation(speeds: Tensor, growth: float, positions: Tensor, dtype: torch.dtype) -> Rotation:
    """What `rotate` needs for tokens at `positions` [T]."""
    angles = positions[:, None, None].float() * speeds
    cos, sin = angles.cos() * growth, angles.sin() * growth
    return Rotation(torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype))


def rotate(heads: Tensor, by: Rotation) -> Tensor:
    """heads [T, N, D], turned; pair i is made of elements i and i + D/2 of a head."""
    return torch.addcmul(heads * by.cos, heads.roll(heads.shape[-1] // 2, -1), by.sin)
