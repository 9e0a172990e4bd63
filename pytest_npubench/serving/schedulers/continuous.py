"""Whole prompts join between decode iterations (Orca: Yu et al., OSDI 2022).

Everybody who waits and fits runs all of their prompt in one iteration, together with all who decode: the shortest time
to a first token, and a gap in everybody's stream as long as the prompts are.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.prompts import whole_prompts
from pytest_npubench.serving.schedulers.protocol import Policy


@dataclass(kw_only=True, eq=False)
class ContinuousScheduler(Policy):
    """max_prefill_tokens limits what joins in one iteration, the first prompt excepted; None: no limit, as Orca has."""

    name = "continuous"

    max_prefill_tokens: int | None = None
    max_batch_size: int = 256

    def plan(self) -> IterationPlan | None:
        """Returns the waiting prompts that fit, whole, beside the decode rows."""
        return self.batch.plan(whole_prompts(self.batch, max_tokens=self.max_prefill_tokens))


SCHEDULER = ContinuousScheduler
