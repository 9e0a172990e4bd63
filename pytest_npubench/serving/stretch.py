"""Iterations that only decode, taken at once: between two of them nothing changes but the lengths of the contexts.

So it is until a request arrives, one ends, or one needs a block that is not free, where the policy is one that plans
the same as long as the batch is the same (`is_steady`) and the executor can tell what its next iterations will cost.
Their times are those of the loop that takes them one by one, to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import DecodeStretch, Executor, IterationPlan
from pytest_npubench.serving.schedulers.protocol import Scheduler

RunDecode = Callable[[IterationPlan, float, float, int], DecodeStretch | None]


def run_decode_of(scheduler: Scheduler, executor: Executor) -> RunDecode | None:
    """What takes several iterations at once (iteration.Executor); None where they are to run one by one."""
    return getattr(executor, "run_decode", None) if getattr(scheduler, "is_steady", False) else None


def decode_stretch(
    run_decode: RunDecode, batch: Batch, plan: IterationPlan, start_s: float, until_s: float | None
) -> DecodeStretch | None:
    """As many iterations of a plan without prefill as start before until_s (None: nothing more arrives), or None: run
    it alone, what follows it may differ."""
    if until_s is None:
        until_s = math.inf
    return run_decode(plan, start_s, until_s, batch.num_steady() if until_s > start_s else 1)
