"""What a policy is: a name, its settings, and the plan of the next iteration over a shared batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pytest_npubench.serving.batch import Batch
from pytest_npubench.serving.iteration import IterationPlan
from pytest_npubench.serving.settings import Setting


class Scheduler(Protocol):
    """One policy over one device's requests; serves one run. `settings` are all of its own, as they are in force.

    num_devices is 1, or 2 where prefill and decode have a device each (serving/disaggregated.py runs those).
    """

    @property
    def name(self) -> str: ...

    @property
    def num_devices(self) -> int: ...

    @property
    def settings(self) -> Mapping[str, Setting]: ...

    @property
    def batch(self) -> Batch: ...

    def plan(self) -> IterationPlan | None:
        """The next iteration, None while there is nothing to run. It takes requests from `batch.admit_next`, and
        decodes all running requests or none; `batch.plan` writes it down. The loop calls it once an iteration, after
        `batch.make_room`, runs what it returns, and tells `batch.complete`."""
        ...

    # is_steady: bool, of the class: whether a plan that only decodes is planned again as long as nobody arrives, ends
    # or is preempted, so that a simulator may take such iterations at once. A policy may do without.
    # keeps_slo: bool, of the class: whether the policy is meant to keep latency limits, so that its cases are held to
    # them. A policy without it is shown and not held.
    # iteration_work(tokens, *, decode_counts) -> Work, of the class: see schedulers.iteration_work. A
    # policy may do without.
