"""At most a chunk of tokens an iteration, decode tokens counted inside it (Sarathi-Serve: Agrawal et al., OSDI 2024).

Several prompts share a chunk. Worked example: a chunk of 512 with 12 requests decoding leaves 500 prompt tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.prompts import chunk_of_prompts
from pytest_npubench.serving.schedulers.protocol import Policy
from pytest_npubench.serving.settings import Work


@dataclass(kw_only=True, eq=False)
class ChunkedPrefillScheduler(Policy):
    """chunk_size_tokens: 512 in Layered Prefill's comparisons. decode_counts: whether decode tokens use it up."""

    name = "chunked"
    keeps_slo = True

    chunk_size_tokens: int = 512
    decode_counts: bool = True
    max_batch_size: int = 256

    @staticmethod
    def iteration_work(tokens: int, *, decode_counts: bool) -> Work:
        return {"chunk_size_tokens": tokens, "decode_counts": decode_counts}

    def plan(self) -> IterationPlan | None:
        """Returns the next chunk of prompts beside the decode rows; none while those alone use it up."""
        batch = self.batch
        if not batch.waiting and not batch.in_flight:
            return batch.plan()
        num_decode = len(batch.running) if self.decode_counts else 0
        return batch.plan(chunk_of_prompts(batch, self.chunk_size_tokens - num_decode))


SCHEDULER = ChunkedPrefillScheduler
