"""What a serving campaign measures: a block of requests under a policy, one prompt or request alone, one decode step,
the device at rest; and what a visit of each leaves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean

from pytest_npubench.campaign.points import Measured, VisitedOnce
from pytest_npubench.campaign.served_block import RUN, ServedBlock, failures_of
from pytest_npubench.campaign.visits import Round, Visit
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics import RequestRecord
from pytest_npubench.serving.request import ServingRequest
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
class ProbePoint(VisitedOnce):
    """One request alone on the engine, under chunked prefill, to its end."""

    prompt_tokens: int
    output_tokens: int

    @property
    def name(self) -> str:
        return f"probe/{self.prompt_tokens}/{self.output_tokens}"

    @property
    def request(self) -> ServingRequest:
        return ServingRequest(id=0, arrival_s=0.0, prompt_tokens=self.prompt_tokens, output_tokens=self.output_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeVisit(Visit):
    """Seconds to its first token, and the mean gap between those after it."""

    ttft_s: float
    tpot_s: float

    @classmethod
    def of(cls, record: RequestRecord) -> ProbeVisit:
        """Raises MeasurementError for a request without two tokens."""
        if record.tpot_s is None:
            raise MeasurementError(f"a probe of {record.output_tokens} tokens had {record.num_tokens}; want all")
        return cls(ttft_s=record.ttft_s, tpot_s=record.tpot_s)


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
    """Seconds and distinct experts, summed over layers, of each step; of each also the seconds until its last launch
    returned, empty where nothing tells them (IterationOutcome)."""

    step_s: tuple[float, ...]
    expert_activations: tuple[int, ...]
    host_s: tuple[float, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPoint(VisitedOnce):
    """What the engine answers to the probe prompts under each policy (asking.py): asked before anything is timed, and
    kept by the first round alone."""

    @property
    def name(self) -> str:
        return "answers"


ServingPoint = ServedPoint | PromptPoint | ProbePoint | DecodePoint | IdlePoint | AnswerPoint

SERVED = re.compile(r"([^(/]+)\((.*?)\)/(.+)")
FOLLOWED: Mapping[type[Visit], str] = {ServedBlock: RUN, PromptVisit: "prefill_s", DecodeSteps: "step_s"}
"""The visits that can be followed from round to round, with a column by which each is known."""


def figures_in(points: Round) -> Mapping[str, tuple[float, ...]]:
    """Returns the figure of each point of a journal's round, in seconds, for the chart of their drift: of a block the
    mean TTFT of its requests, of a prompt its prefill, of a decode batch its steps. A block of which requests failed
    has none, nor have columns that do not fit together.

    Worked example: the block of "layered(tokens_per_iteration=64)/arxiv@r1.3" with arrivals (0, 1) and first tokens at
    0.5 and 2.0 s makes "layered/arxiv@r1.3 (tokens_per_iteration=64)" of 0.75 s.
    """
    measured, seconds = Measured(rounds=[points]), dict[str, tuple[float, ...]]()
    followed = ((name, of) for name in points for of, column in FOLLOWED.items() if name.endswith(f"/{column}"))
    for name, of in followed:
        point = name.removesuffix(f"/{FOLLOWED[of]}")
        with suppress(MeasurementError):
            for (visit,) in measured.visits(point, of):
                seconds[_policy_first(point)] = _figures(visit)
    return seconds


def _figures(visit: Visit) -> tuple[float, ...]:
    match visit:
        case ServedBlock(records=records, ttfts_s=ttfts_s):
            return () if failures_of(records) or not ttfts_s else (fmean(ttfts_s),)
        case PromptVisit(prefill_s=prefill_s):
            return (prefill_s,)
        case DecodeSteps(step_s=step_s):
            return step_s
    raise AssertionError(visit)


def _policy_first(point: str) -> str:
    """The policy gives a line its colour; its settings stand last."""
    match = SERVED.fullmatch(point)
    if match is None:
        return point
    policy, settings, load = match.groups()
    return f"{policy}/{load} ({settings})" if settings else f"{policy}/{load}"
