"""Activations with outlier channels, made from a seed; what they show is numerical error, never a model's accuracy.

Every channel is standard normal; a hot channel is that times magnitude * exp(spread * normal): large in every token, as
outliers of decoders are (LLM.int8(), arXiv 2208.07339, section 3). Weights are normal over the square root of the
channels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from pytest_npubench.engines.quantization import Floats
from pytest_npubench.errors import ConfigError

MAGNITUDE = 42.0
SPREAD = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlierCase:
    """One operator: [tokens, channels] times [channels, rows], num_outliers of the channels hot."""

    num_tokens: int
    num_channels: int
    num_rows: int
    num_outliers: int
    magnitude: float = MAGNITUDE
    spread: float = SPREAD
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_tokens", "num_channels", "num_rows"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; want at least 1")
        if not 0 <= self.num_outliers <= self.num_channels:
            raise ConfigError(f"{self.num_outliers} outlier channels of {self.num_channels}; want none to all")
        if not self.magnitude > 0:
            raise ConfigError(f"magnitude is {self.magnitude}; want more than 0")

    @property
    def hot_channels(self) -> tuple[int, ...]:
        chosen = np.random.default_rng(self.seed).permutation(self.num_channels)[: self.num_outliers]
        return tuple(sorted(int(channel) for channel in chosen))

    def at(self, num_outliers: int) -> OutlierCase:
        return replace(self, num_outliers=num_outliers)


def weight(case: OutlierCase) -> Floats:
    """[channels, rows]."""
    chance = np.random.default_rng((case.seed, 1))
    drawn = chance.standard_normal((case.num_channels, case.num_rows), dtype=np.float32)
    return np.asarray(drawn / np.float32(np.sqrt(case.num_channels)), dtype=np.float32)


def activation(case: OutlierCase, *, batch: int = 0) -> Floats:
    """[tokens, channels]; batch 0 is what one runs, any other a profile drawn alike."""
    chance = np.random.default_rng((case.seed, 2, batch))
    x = chance.standard_normal((case.num_tokens, case.num_channels), dtype=np.float32)
    gains = np.exp(case.spread * np.random.default_rng((case.seed, 3)).standard_normal(case.num_outliers))
    x[:, list(case.hot_channels)] *= (case.magnitude * gains).astype(np.float32)
    return x
