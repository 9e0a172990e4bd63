"""Iterations that follow one another through the stages of a pipeline, on the virtual clock.

A pipeline has as many micro-batches as stages. Each has requests of its own and plans its next iteration once the one
before has given its tokens; behind one that gives none, as a long prompt's chunks but the last, once that has entered
the first stage. Iterations go through host and stages in order, each of which has one at a time. The micro-batches
share the KV cache, and have equal parts of the requests that may be admitted (so do SGLang's; vLLM's queue of batches
keeps those together that were planned together).

Worked example: stages of 10 ms, 1 ms between them, a host of 2 ms. One request has a token every 2 + 10 + 1 + 10 = 23
ms. The other micro-batch's request has its tokens in between, every 23 ms as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pytest_npubench.extensions.planning.replicas import Replica
from pytest_npubench.extensions.planning.virtual.stages import Stages
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan


class UnderWay(NamedTuple):
    """An iteration that was planned and whose bookkeeping is still to be done."""

    plan: IterationPlan
    outcome: IterationOutcome
    start_s: float
    end_s: float


class Pipeline:
    """A replicas.Pace of micro-batches, which share their blocks from now on."""

    def __init__(self, replicas: Sequence[Replica], stages: Stages) -> None:
        self.replicas = replicas
        self._stages = stages
        self._busy_until_s = [0.0] * (1 + len(stages.layers))  # the host, and each stage
        self._ready_s = [math.inf] * len(replicas)
        self._under_way: list[UnderWay | None] = [None] * len(replicas)
        batches = [replica.scheduler.batch for replica in replicas]
        for batch in batches:
            batch.blocks = batches[0].blocks
            batch.max_batch_size = math.ceil(batch.max_batch_size / len(batches))

    @property
    def free_s(self) -> float:
        """When a micro-batch plans next; infinite: they have nothing."""
        return min(self._ready_s)

    def wake(self, at_s: float) -> None:
        self._ready_s = [at_s if ready_s == math.inf else ready_s for ready_s in self._ready_s]

    def step(self, until_s: float, expects_more: bool) -> None:
        """The next micro-batch's iteration is done, and its next one is planned and goes through the stages."""
        del until_s
        now_s = self.free_s
        index = self._ready_s.index(now_s)
        replica = self.replicas[index]
        if (done := self._under_way[index]) is not None:
            self._under_way[index] = None
            replica.ran(*done)
            self._wake_waiting(now_s)
        plan = replica.plan(now_s, now_s, expects_more)
        if plan is None:
            replica.rest()
            self._ready_s[index] = math.inf
            return
        work, activations = replica.executor.work(plan)
        padded = sum(layers.activations for layers in work.passes) if plan.num_padding_rows else activations
        host_s, stages = self._stages.seconds(work)
        entered_s, end_s = self._through(now_s, host_s, stages)
        outcome = replica.executor.outcome(end_s - now_s, activations, padded_activations=padded)
        self._under_way[index] = UnderWay(plan, outcome, now_s, end_s)
        self._ready_s[index] = end_s if plan.decode or plan.finishing else entered_s

    def _wake_waiting(self, now_s: float) -> None:
        """Blocks may have become free, which others wait for."""
        for index, replica in enumerate(self.replicas):
            if self._ready_s[index] == math.inf and replica.scheduler.batch.waiting:
                self._ready_s[index] = now_s

    def _through(self, now_s: float, host_s: float, stages: Sequence[tuple[float, float]]) -> tuple[float, float]:
        """When an iteration that is planned now enters the first stage, and leaves the last one."""
        starts_s, there_s = [], now_s
        for machine, (busy_s, link_s) in enumerate(((host_s, 0.0), *stages)):
            starts_s.append(max(there_s, self._busy_until_s[machine]))
            self._busy_until_s[machine] = starts_s[-1] + busy_s
            there_s = self._busy_until_s[machine] + link_s
        return starts_s[1], there_s
