"""A batch is prefilled together and decodes to the end of its longest member (FasterTransformer).

Who has ended keeps its row until then, as padding, and nobody joins. KV blocks are held for prompt and output from the
start, so nobody is preempted.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.prompts import whole_prompts
from pytest_npubench.serving.schedulers.protocol import Policy
from pytest_npubench.serving.settings import check_count


@dataclass(kw_only=True, eq=False)
class StaticScheduler(Policy):
    """batch_size: the most requests of a batch, None: max_batch_size. wait_for_full_batch: whether a batch that more
    arrivals could still fill waits for them; else it starts with who is there when the device is free."""

    name = "static"

    batch_size: int | None = None
    wait_for_full_batch: bool = False
    max_batch_size: int = 256

    def __post_init__(self) -> None:
        check_count(self.name, "max_batch_size", self.max_batch_size)
        check_count(self.name, "batch_size", self.batch_size, most=self.max_batch_size, none_allowed=True)
        super().__post_init__()
        self._most_requests = self.batch_size or self.max_batch_size
        self._num_rows = 0

    def plan(self) -> IterationPlan | None:
        """The batch decodes; once all of it has ended, the next one is prefilled."""
        if self.batch.running:
            return self.batch.plan(num_padding_rows=self._num_rows - len(self.batch.running))
        if self._waits():
            return None
        rows = whole_prompts(self.batch, max_prompts=self._most_requests, reserve_output=True)
        self._num_rows = len(rows)
        return self.batch.plan(rows)

    def _waits(self) -> bool:
        batch = self.batch
        return self.wait_for_full_batch and batch.expects_more and len(batch.waiting) < self._most_requests


SCHEDULER = StaticScheduler
