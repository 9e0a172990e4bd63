"""What a profile case says of its bucket: times, and what they come to in energy, in money and beside the roofline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_npubench.core.measurement import CostRecord
from pytest_npubench.suites.buckets.active import ActiveDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyDetail:
    """Joules a token and mean watts over both points; or why_not."""

    prompt_token_j: float | None = None
    output_token_j: float | None = None
    power_w: float | None = None
    why_not: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceDetail:
    """Of a million tokens of either kind."""

    currency: str
    prompt: float
    output: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What binds a step, and its time over each bound."""

    constraint: str
    of_compute: float
    of_memory: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileDetail:
    """TTFT_b and TBT_b of a bucket with their standard errors; where each binary came from, what the profile cost, the
    mean of each profile point by its name, the relative spread of the longer one, and the lengths behind which the
    engine declares a step. estimated_*: what the compiler says of both times, where a run asked for that rival. What
    only a run has is None or empty where the times are those of graphs. active: None where repeats are fixed. energy:
    what a token takes. price: what it costs, None without a price. binding: what binds each phase, None without
    published peaks."""

    bucket: int
    ttft_s: float
    tbt_s: float
    ttft_error_s: float | None = None
    tbt_error_s: float | None = None
    compile_cache: tuple[str, ...] = ()
    cost: CostRecord | None = None
    points_s: Mapping[str, float] = field(default_factory=dict)
    spread: float | None = None
    continuous: bool = False
    declared: tuple[int, ...] = ()
    estimated_ttft_s: float | None = None
    estimated_tbt_s: float | None = None
    active: ActiveDetail | None = None
    energy: EnergyDetail | None = None
    price: PriceDetail | None = None
    binding: Mapping[str, Binding] | None = None
