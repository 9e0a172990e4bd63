"""One layer group of the waiting prompts an iteration, all other layers only decode (Layered Prefill, section 4).

A prompt runs through each layer once, in N(L) iterations that each hold about as much prefill work as a chunk of
tokens_per_iteration; prompts that wait together run as one batch of up to merge_cap_tokens, and nobody joins before it
has passed the last layer.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.serving.iteration import IterationPlan, PrefillRow
from pytest_npubench.serving.layered_flight import LayeredFlight
from pytest_npubench.serving.prompts import whole_prompts
from pytest_npubench.serving.schedulers.protocol import Policy
from pytest_npubench.serving.settings import MERGE_CHUNKS, Work


@dataclass(kw_only=True, eq=False)
class LayeredPrefillScheduler(Policy):
    """num_layer_groups None: N(L) of serving/layered_flight.py with tokens_per_iteration, L the batch's prompt tokens.

    merge_cap_tokens limits the prompts that merge; the first of them may be longer. The paper merges "multiple small
    inputs" and names no cap: 8,192 is the chunk of its combination with chunked prefill (section 4.3).
    """

    name = "layered"
    keeps_slo = True

    num_layer_groups: int | None = None
    tokens_per_iteration: int = 512
    merge_cap_tokens: int = 8192
    max_batch_size: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        self._flight = LayeredFlight(
            self.batch, num_layer_groups=self.num_layer_groups, tokens_per_iteration=self.tokens_per_iteration
        )

    @staticmethod
    def iteration_work(tokens: int, *, decode_counts: bool) -> Work:
        """Takes as many layer groups as make an iteration's work that of a chunk; short prompts merge."""
        return {"tokens_per_iteration": tokens, "merge_cap_tokens": MERGE_CHUNKS * tokens}

    def plan(self) -> IterationPlan | None:
        """Returns the flight's next layer group beside the decode rows; with no flight, the waiting prompts set off."""
        return self._flight.plan(self._merged_prompts)

    def _merged_prompts(self) -> tuple[PrefillRow, ...]:
        return whole_prompts(self.batch, max_tokens=self.merge_cap_tokens)


SCHEDULER = LayeredPrefillScheduler
