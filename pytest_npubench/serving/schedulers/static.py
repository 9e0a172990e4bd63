"""A batch is prefilled together and decodes to the end of its longest member (FasterTransformer).

Who has ended keeps its row until then, as padding, and nobody joins. KV blocks are held for prompt and output from the
start, so nobody is preempted.
"""

from __future__ import annotations

from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.prompts import whole_prompts
from pytest_npubench.serving.settings import Setting, check_count, check_yes_or_no


class StaticScheduler:
    """batch_size: the most requests of a batch, None: max_batch_size. wait_for_full_batch: whether a batch that more
    arrivals could still fill waits for them; else it starts with who is there when the device is free."""

    name = "static"
    num_devices = 1
    is_steady = True

    def __init__(
        self,
        *,
        num_layers: int,
        kv_blocks: int,
        block_size_tokens: int,
        batch_size: int | None = None,
        wait_for_full_batch: bool = False,
        max_batch_size: int = 256,
    ) -> None:
        check_count(self.name, "max_batch_size", max_batch_size)
        check_count(self.name, "batch_size", batch_size, most=max_batch_size, none_allowed=True)
        check_yes_or_no(self.name, "wait_for_full_batch", wait_for_full_batch)
        self.settings: dict[str, Setting] = {
            "batch_size": batch_size,
            "wait_for_full_batch": wait_for_full_batch,
            "max_batch_size": max_batch_size,
        }
        self._batch_size = batch_size or max_batch_size
        self._wait_for_full_batch = wait_for_full_batch
        self._num_rows = 0
        self.batch = Batch(
            num_layers=num_layers,
            kv_blocks=kv_blocks,
            block_size_tokens=block_size_tokens,
            max_batch_size=max_batch_size,
        )

    def plan(self) -> IterationPlan | None:
        """The batch decodes; once all of it has ended, the next one is prefilled."""
        if self.batch.running:
            return self.batch.plan(num_padding_rows=self._num_rows - len(self.batch.running))
        if self._waits():
            return None
        rows = whole_prompts(self.batch, max_prompts=self._batch_size, reserve_output=True)
        self._num_rows = len(rows)
        return self.batch.plan(rows)

    def _waits(self) -> bool:
        batch = self.batch
        return self._wait_for_full_batch and batch.expects_more and len(batch.waiting) < self._batch_size


SCHEDULER = StaticScheduler
