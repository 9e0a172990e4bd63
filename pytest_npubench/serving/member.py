"""A request from its arrival to its end, as the batch keeps it.

Its token times are not stored: token i of a segment ended with iteration first + i, whose end is in the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pytest_npubench.serving.request import ServingRequest


@dataclass(slots=True, eq=False)
class BatchMember:
    """What changes about a request while it is served. Steps count the iterations that decoded.

    prompt_tokens are to be prefilled: the request's prompt, and what it had generated before a preemption.
    remaining_tokens were still to be generated when it was last admitted. segments are (first iteration, number of
    tokens), one token an iteration. gives_from is the iteration of the open segment's first token. num_blocks in
    num_rows (KvBlocks.rows_of) were taken when it was last admitted; from grows_from_step on it takes one more row
    every block (Batch.blocks_of counts), from fills_at_step on without blocks of layers with a window.
    """

    request: ServingRequest
    dispatched_s: float
    id: int
    prompt_tokens: int
    remaining_tokens: int
    prefilled_tokens: int = 0
    num_blocks: int = 0
    num_rows: int = 0
    scheduled_at: int | None = None
    decodes_from_step: int = 0
    finishes_at_step: int = 0
    grows_from_step: int | None = None
    fills_at_step: int | None = None
    gives_from: int | None = None
    segments: list[tuple[int, int]] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    num_preemptions: int = 0

    @property
    def peak_kv_tokens(self) -> int:
        """Counts tokens alike before and after a preemption: what moves into the prompt no longer remains."""
        return self.prompt_tokens + self.remaining_tokens - 1

    def close_segment(self, stop: int) -> None:
        """Tokens came from iteration gives_from up to, without, `stop`."""
        if self.gives_from is not None and stop > self.gives_from:
            self.segments.append((self.gives_from, stop - self.gives_from))
        self.gives_from = None

    def restart(self, num_generated: int) -> None:
        """Begins anew without keys and values: what the request generated has to be prefilled with its prompt."""
        self.prompt_tokens += num_generated
        self.remaining_tokens -= num_generated
        self.prefilled_tokens = 0
        self.num_preemptions += 1
