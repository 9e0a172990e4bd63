"""A request as the load makes it: when it arrives, how long its prompt is, how many tokens it wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytest_npubench.errors import WorkloadError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRequest:
    """One arrival. `id` is unique in its load. Raises WorkloadError for a time or a length that cannot be served."""

    id: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        if not 0 <= self.arrival_s < float("inf"):
            raise WorkloadError(f"request {self.id}: arrival_s is {self.arrival_s}; want a finite number of at least 0")
        for name in ("prompt_tokens", "output_tokens"):
            if getattr(self, name) < 1:
                raise WorkloadError(f"request {self.id}: {name} is {getattr(self, name)}; want at least 1")

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.output_tokens


def check_load(requests: Sequence[ServingRequest]) -> None:
    """Raises WorkloadError where nothing arrives, ids repeat, or arrivals are out of order."""
    if not requests:
        raise WorkloadError("no request arrives; want at least one")
    if len({request.id for request in requests}) < len(requests):
        raise WorkloadError("two requests of one id; want each id once")
    for before, after in pairwise(requests):
        if after.arrival_s < before.arrival_s:
            raise WorkloadError(
                f"request {after.id} arrives at {after.arrival_s} s, after request {before.id} that arrives at "
                f"{before.arrival_s} s; want arrivals in order"
            )
