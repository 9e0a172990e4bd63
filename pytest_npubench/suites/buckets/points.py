"""What a bucket campaign times."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.core.measurement import Request

VISIT_S = 0.5
MAX_VISITS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketPoint:
    """One thing to time: a batch of requests end to end, a move of the KV cache between neighbouring buckets, or a
    canary kernel by its name.

    `pure_bucket` names the one bucket the batch must stay in; leaving it makes the point fail (LENS, section 4.3).
    A round visits the point for about visit_s seconds in all, or once where that takes longer.
    """

    name: str
    requests: tuple[Request, ...] = ()
    move: tuple[int, int] | None = None
    kernel: str | None = None
    pure_bucket: int | None = None
    warm_up: bool = True
    visit_s: float = VISIT_S

    def visits(self, duration_s: float) -> int:
        """How often one round visits the point when it takes so long: 1 to 6 times."""
        return max(1, min(MAX_VISITS, int(self.visit_s / duration_s) if duration_s > 0 else MAX_VISITS))

    @property
    def definition(self) -> list[object]:
        """JSON form for the campaign's digest."""
        return [self.name, [[item.input_tokens, item.output_tokens] for item in self.requests], self.move]
