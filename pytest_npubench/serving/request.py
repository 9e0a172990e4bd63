"""A request as the load makes it: when it arrives, how long its prompt is, how many tokens it wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pytest_npubench.errors import WorkloadError


class PromptContent(NamedTuple):
    """What a prompt holds: ids of tokens_per_id tokens each, the last one of what is left. Prompts that begin with the
    same ids begin with the same tokens: token ids have 1 token each, Mooncake's hash_ids 512."""

    ids: tuple[int, ...]
    tokens_per_id: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingRequest:
    """One arrival. `id` is unique in its load. Raises WorkloadError for a time or a length that cannot be served, or a
    content of another length."""

    id: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    content: PromptContent | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.arrival_s < float("inf"):
            raise WorkloadError(f"request {self.id}: arrival_s is {self.arrival_s}; want a finite number of at least 0")
        for name in ("prompt_tokens", "output_tokens"):
            if getattr(self, name) < 1:
                raise WorkloadError(f"request {self.id}: {name} is {getattr(self, name)}; want at least 1")
        if self.content is not None and len(self.content.ids) != -(-self.prompt_tokens // self.content.tokens_per_id):
            raise WorkloadError(
                f"request {self.id}: {len(self.content.ids)} ids of {self.content.tokens_per_id} tokens each are not "
                f"those of {self.prompt_tokens} prompt tokens"
            )

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
