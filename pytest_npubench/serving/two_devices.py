"""Two devices that run at once, and the link between them, as the disaggregated loop sees them.

run        start an iteration on one side
hand_over  start to move a request's keys and values from the prefill to the decode side, one at a time
wait       until the next of these ends, or until a time
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from pytest_npubench.serving.iteration import Executor, IterationOutcome, IterationPlan
from pytest_npubench.serving.request import ServingRequest


class ServingSide(Enum):
    """Which of the two devices."""

    PREFILL = "prefill"
    DECODE = "decode"


class HandoverExecutor(Executor, Protocol):
    """An executor whose requests can move to another one of its kind. Both copy; `end` frees."""

    def export_kv(self, request: int) -> tuple[int, object]:
        """Returns the bytes of the request's keys and values, and whatever carries them with its latest token."""
        ...

    def import_kv(self, request: int, kv: object) -> None:
        """After `begin`: the request has its prompt's keys and values and its first token, and can decode."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRun:
    """A side has run a plan."""

    side: ServingSide
    plan: IterationPlan
    outcome: IterationOutcome
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """The decode side has a request's keys and values, and the prefill side has freed them."""

    request: ServingRequest
    num_bytes: int
    start_s: float
    end_s: float


class TwoDevices(Protocol):
    """Times are on one clock that starts at 0 with `start`."""

    @property
    def clock(self) -> str:
        """ "wall" or "virtual"."""
        ...

    def shapes(self) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """(num_layers, kv_capacity_tokens, block_size_tokens) of the prefill and of the decode side."""
        ...

    def start(self) -> None: ...

    def now_s(self) -> float: ...

    def begin(self, request: ServingRequest) -> None:
        """On the prefill side."""
        ...

    def run(self, side: ServingSide, plan: IterationPlan) -> None: ...

    def hand_over(self, request: ServingRequest) -> None: ...

    def wait(self, until_s: float | None) -> Sequence[DeviceRun | HandedOver]:
        """What has ended, in order; nothing where until_s came first. None: until something ends."""
        ...

    def end(self, side: ServingSide, request: int) -> None: ...
