"""Whole prompts join between decode iterations (Orca: Yu et al., OSDI 2022).

Everybody who waits and fits runs all of their prompt in one iteration, together with all who decode: the shortest time
to a first token, and a gap in everybody's stream as long as the prompts are.
"""

from __future__ import annotations

from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.prompts import whole_prompts
from pytest_npubench.serving.settings import Setting, check_count


class ContinuousScheduler:
    """max_prefill_tokens limits what joins in one iteration, the first prompt excepted; None: no limit, as Orca has."""

    name = "continuous"
    num_devices = 1
    is_steady = True

    def __init__(
        self,
        *,
        num_layers: int,
        kv_blocks: int,
        block_size_tokens: int,
        max_prefill_tokens: int | None = None,
        max_batch_size: int = 256,
    ) -> None:
        check_count(self.name, "max_prefill_tokens", max_prefill_tokens, none_allowed=True)
        check_count(self.name, "max_batch_size", max_batch_size)
        self.settings: dict[str, Setting] = {
            "max_prefill_tokens": max_prefill_tokens,
            "max_batch_size": max_batch_size,
        }
        self._max_prefill_tokens = max_prefill_tokens
        self.batch = Batch(
            num_layers=num_layers,
            kv_blocks=kv_blocks,
            block_size_tokens=block_size_tokens,
            max_batch_size=max_batch_size,
        )

    def plan(self) -> IterationPlan | None:
        """Returns the waiting prompts that fit, whole, beside the decode rows."""
        return self.batch.plan(whole_prompts(self.batch, max_tokens=self._max_prefill_tokens))


SCHEDULER = ContinuousScheduler
