"""Replicas of one model that share its experts: an iteration of all of them, as long as the slowest takes.

Each has its own attention, its own requests and their keys and values; the experts lie on the devices of all, so that
the rows of all replicas activate them together. Worked example: two replicas decode 10 rows each: the experts of 20
rows are read, half of them by the devices of either.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pytest_npubench.engines.shapes import DecoderShape
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.extensions.planning.virtual.router import sampled_router
from pytest_npubench.extensions.planning.virtual.step_cost import StepWork
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan


class SharedExperts:
    """Runs plans of all replicas in lock step (replicas.RunTogether)."""

    def __init__(self, shape: DecoderShape, executors: Sequence[VirtualExecutor], *, seed: int = 0) -> None:
        """The executors' costs are those of replicas that share (cost_model's num_sharing)."""
        self._executors = executors
        self._router = sampled_router(shape, seed)
        self._shape = shape
        self._iteration = 0

    def __call__(self, plans: Sequence[IterationPlan | None]) -> list[IterationOutcome | None]:
        self._iteration += 1
        works = {index: self._executors[index].work(plan)[0] for index, plan in enumerate(plans) if plan is not None}
        segments = self._activations(list(works.values()))
        mean_rows = sum(map(_layer_rows, works.values())) / len(self._executors)
        duration_s = max(
            self._executors[index].cost.seconds(
                work._replace(
                    passes=[
                        one._replace(activations=sum(n for first, n in segments if one.first <= first < one.stop))
                        for one in work.passes
                    ],
                    expert_rows=mean_rows / _layer_rows(work),
                )
            )
            for index, work in works.items()
        )
        # what all activate together is counted once
        counted = dict.fromkeys(works, 0) | {min(works): sum(number for _, number in segments)}
        return [
            executor.outcome(duration_s, counted[index], padded_activations=counted[index]) if index in works else None
            for index, executor in enumerate(self._executors)
        ]

    def _activations(self, works: Sequence[StepWork]) -> list[tuple[int, int]]:
        """First layer and activated experts of each run of layers in which all replicas' rows stay the same."""
        cuts = sorted({cut for work in works for one in work.passes for cut in (one.first, one.stop)})
        segments = []
        for first, stop in pairwise(cuts):
            inside = [(work, one) for work in works for one in work.passes if one.first <= first < one.stop]
            rows = sum(work.decode_rows for work, _ in inside)
            layers = self._shape.expert_layers(first, stop)
            prefill = [row for _, one in inside for row in one.prefill]
            segments.append((first, self._router.activations(self._iteration, *layers, rows, prefill)))
        return segments


def _layer_rows(work: StepWork) -> float:
    """Rows times the layers that they run through."""
    return sum(
        (one.stop - one.first) * (work.decode_rows + sum(row.num_tokens for row in one.prefill)) for one in work.passes
    )
