"""Large chunks, each run layered (Layered Prefill, section 4.3): for prompts too long to be on their way at once.

The keys and values of earlier chunks stay, so a later chunk attends to them as in chunked prefill. Worked example:
20,000 tokens in chunks of 8,192 at 512 an iteration run in 16 + 16 + 8 iterations (the last chunk has 3,616 tokens).
With one layer group it is chunked prefill whose decode tokens do not count; with a chunk above all prompts, layered.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.serving.iteration import IterationPlan, PrefillRow
from pytest_npubench.serving.layered_flight import LayeredFlight
from pytest_npubench.serving.prompts import chunk_of_prompts
from pytest_npubench.serving.schedulers.protocol import Policy
from pytest_npubench.serving.settings import MERGE_CHUNKS, Work


@dataclass(kw_only=True, eq=False)
class HybridPrefillScheduler(Policy):
    """chunk_size_tokens set off together, of one prompt or several. The other settings are layered prefill's."""

    name = "hybrid"
    keeps_slo = True

    chunk_size_tokens: int = 8192
    num_layer_groups: int | None = None
    tokens_per_iteration: int = 512
    max_batch_size: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        self._flight = LayeredFlight(
            self.batch, num_layer_groups=self.num_layer_groups, tokens_per_iteration=self.tokens_per_iteration
        )

    @staticmethod
    def iteration_work(tokens: int, *, decode_counts: bool) -> Work:
        return {"chunk_size_tokens": MERGE_CHUNKS * tokens, "tokens_per_iteration": tokens}

    def plan(self) -> IterationPlan | None:
        """Returns the chunk's next layer group beside the decode rows; with no flight, the next chunk sets off."""
        return self._flight.plan(self._next_chunk)

    def _next_chunk(self) -> tuple[PrefillRow, ...]:
        return chunk_of_prompts(self.batch, self.chunk_size_tokens)


SCHEDULER = HybridPrefillScheduler
