"""Decode steps of a batch that is there from the start: what a step takes, and which share of the experts it loads."""

from __future__ import annotations

from itertools import count

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.serving.iteration import Executor, IterationPlan, LayerGroup, LayerPass, PrefillRow
from pytest_npubench.suites.scheduling.points import DecodeSteps

FIRST_ID = 1_000_000  # not those of any block; the same prompts on every machine and in every session


def decode_steps(executor: Executor, batch_size: int, context_tokens: int, num_steps: int) -> DecodeSteps:
    """Prefill so many prompts of one length, then decode them together. Raises what the executor raises."""
    requests = [number for number, _ in zip(count(FIRST_ID), range(batch_size), strict=False)]
    whole = LayerGroup(0, executor.num_layers)
    try:
        for request in requests:
            executor.begin(request, context_tokens, num_steps + 1)
            row = PrefillRow(request, 0, context_tokens)
            executor.run(IterationPlan(passes=(LayerPass(whole, (row,)),), finishing=(request,)))
        return _steps(executor, IterationPlan(decode=tuple(requests), passes=(LayerPass(whole),)), num_steps)
    finally:
        for request in requests:
            executor.end(request)


def _steps(executor: Executor, plan: IterationPlan, num_steps: int) -> DecodeSteps:
    seconds, outcomes = [], []
    for _ in range(num_steps):
        started_s = perf_counter()
        outcomes.append(executor.run(plan))
        seconds.append(perf_counter() - started_s)
    host_s = tuple(outcome.host_s for outcome in outcomes if outcome.host_s is not None)
    return DecodeSteps(
        step_s=tuple(seconds),
        expert_activations=tuple(outcome.expert_activations for outcome in outcomes),
        host_s=host_s if len(host_s) == num_steps else (),
    )
