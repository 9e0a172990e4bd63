"""At most a chunk of tokens an iteration, decode tokens counted inside it (Sarathi-Serve: Agrawal et al., OSDI 2024).

Several prompts share a chunk. Worked example: a chunk of 512 with 12 requests decoding leaves 500 prompt tokens.
"""

from __future__ import annotations

from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.prompts import chunk_of_prompts
from pytest_npubench.serving.settings import Setting, Work, check_count, check_yes_or_no


class ChunkedPrefillScheduler:
    """chunk_size_tokens: 512 in Layered Prefill's comparisons. decode_counts: whether decode tokens use it up."""

    name = "chunked"
    num_devices = 1
    is_steady = True
    keeps_slo = True

    def __init__(
        self,
        *,
        num_layers: int,
        kv_blocks: int,
        block_size_tokens: int,
        chunk_size_tokens: int = 512,
        decode_counts: bool = True,
        max_batch_size: int = 256,
    ) -> None:
        check_count(self.name, "chunk_size_tokens", chunk_size_tokens)
        check_yes_or_no(self.name, "decode_counts", decode_counts)
        check_count(self.name, "max_batch_size", max_batch_size)
        self.settings: dict[str, Setting] = {
            "chunk_size_tokens": chunk_size_tokens,
            "decode_counts": decode_counts,
            "max_batch_size": max_batch_size,
        }
        self._chunk_size_tokens = chunk_size_tokens
        self._decode_counts = decode_counts
        self.batch = Batch(
            num_layers=num_layers,
            kv_blocks=kv_blocks,
            block_size_tokens=block_size_tokens,
            max_batch_size=max_batch_size,
        )

    @staticmethod
    def iteration_work(tokens: int, *, decode_counts: bool) -> Work:
        return {"chunk_size_tokens": tokens, "decode_counts": decode_counts}

    def plan(self) -> IterationPlan | None:
        """Returns the next chunk of prompts beside the decode rows; none while those alone use it up."""
        batch = self.batch
        if not batch.waiting and not batch.in_flight:
            return batch.plan()
        num_decode = len(batch.running) if self._decode_counts else 0
        return batch.plan(chunk_of_prompts(batch, self._chunk_size_tokens - num_decode))


SCHEDULER = ChunkedPrefillScheduler
