"""What the caller of the gate decides: margin, false discovery rate, direction and scale."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pytest_npubench.errors import ConfigError
from pytest_npubench.stats.checks import fraction
from pytest_npubench.verdict.entries import Better, Scale

MAX_LOG = 700.0  # exp of more overflows


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Raises ConfigError naming what is wrong and what is allowed.

    An entry is a logarithm on the scale "ratio" and the value itself on "difference"; more is worse (entries).
    """

    margin: float = 0.01
    q: float = 0.05
    better: Better = "lower"
    scale: Scale = "ratio"

    def __post_init__(self) -> None:
        if not (isinstance(self.margin, (int, float)) and 0 <= self.margin < 1):
            raise ConfigError(f"margin is {self.margin!r}; want a fraction from 0 to below 1, such as 0.01")
        if not isinstance(self.q, (int, float)):
            raise ConfigError(f"q is {self.q!r}; want a fraction between 0 and 1, such as 0.05")
        fraction("q", self.q)
        for name, allowed in (("better", ("lower", "higher")), ("scale", ("ratio", "difference"))):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; want {' or '.join(allowed)}")

    def entry(self, worse_by: float) -> float:
        """A fraction for the worse as a difference of entries: log(1 + f), -log(1 - f) where higher is better, or f."""
        if self.scale == "difference":
            return worse_by
        return -math.log1p(-worse_by) if self.better == "higher" else math.log1p(worse_by)

    def fraction(self, entry: float) -> float:
        """The other way round: by what fraction a difference of entries is worse, below 0 for better."""
        if self.scale == "difference":
            return entry
        return -math.expm1(min(-entry, MAX_LOG)) if self.better == "higher" else math.expm1(min(entry, MAX_LOG))

    def ratio(self, entry: float) -> float:
        """current / baseline of a difference of entries; current - baseline on the scale "difference"."""
        signed = -entry if self.better == "higher" else entry
        return math.exp(min(signed, MAX_LOG)) if self.scale == "ratio" else signed

    def ratios(self, low: float, high: float) -> tuple[float, float]:
        """The interval of ratios of an interval of entries, ascending."""
        ends = sorted((self.ratio(low), self.ratio(high)))
        return ends[0], ends[1]
