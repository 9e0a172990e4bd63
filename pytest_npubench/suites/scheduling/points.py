"""What a serving campaign measures: a block of requests under a policy, one prompt alone, one decode step,
the device at rest; and what a visit of each leaves."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.campaign.points import VisitedOnce
from pytest_npubench.campaign.visits import Visit
from pytest_npubench.suites.scheduling.spec import LoadSpec

Settings = tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedPoint(VisitedOnce):
    """A block of requests of one load, served under one policy with these settings.

    cv is that of gamma arrivals, None for Poisson ones. With at_once every request is there when the block begins:
    offline throughput.
    """

    policy: str
    load: LoadSpec
    settings: Settings = ()
    cv: float | None = None
    at_once: bool = False

    @property
    def name(self) -> str:
        settings = ",".join(f"{name}={value}" for name, value in self.settings)
        arrivals = "at-once" if self.at_once else self.load.rate_name + (f"cv{self.cv:g}" if self.cv else "")
        return f"{self.policy}({settings})/{self.load.workload}@{arrivals}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPoint(VisitedOnce):
    """One prompt alone on the engine, prefilled in chunks (Layered Prefill, Fig. 2)."""

    prompt_tokens: int
    chunk_size_tokens: int

    @property
    def name(self) -> str:
        return f"prompt/{self.prompt_tokens}/{self.chunk_size_tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVisit(Visit):
    """Seconds from its arrival to its first token, and the bytes of experts that its chunks loaded."""

    prefill_s: float
    expert_load_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodePoint(VisitedOnce):
    """One decode step of a batch of requests with one context length (Layered Prefill, Table 1 and section 5.1)."""

    batch_size: int
    context_tokens: int

    @property
    def name(self) -> str:
        return f"decode/{self.batch_size}/{self.context_tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSteps(Visit):
    """Seconds and distinct experts, summed over layers, of each step."""

    step_s: tuple[float, ...]
    expert_activations: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdlePoint(VisitedOnce):
    """The device with weights on it and nothing to do: the power it draws beside the blocks that were served."""

    @property
    def name(self) -> str:
        return "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleVisit(Visit):
    """Its mean power; None where no energy counter can be read."""

    power_w: float | None = None


ServingPoint = ServedPoint | PromptPoint | DecodePoint | IdlePoint
