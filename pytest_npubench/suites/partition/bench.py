"""Measures splits on an open pair of units: weights are made once, splits take turns on them.

Every split's output is compared with what the GPU alone makes of the operator, in float32, before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.campaign.lost_unit import LastWords
from pytest_npubench.campaign.rounds import failure_reason
from pytest_npubench.errors import MeasurementError, PartitionError
from pytest_npubench.partition.matmul import GPU, Matmul, Split
from pytest_npubench.partition.model_shapes import operators
from pytest_npubench.partition.profile import PartitionProfile
from pytest_npubench.partition.profiler import measure_profile
from pytest_npubench.partition.regret import MAX_RELATIVE_ERROR
from pytest_npubench.partition.solver import Decision, solve
from pytest_npubench.partition.strategies import all_splits
from pytest_npubench.partition.sync.overlap import Chain, runs_chains
from pytest_npubench.partition.sync.splits import alone, row_split
from pytest_npubench.partition.unit import SplitTiming, UnitPair
from pytest_npubench.partition.units import open_pair
from pytest_npubench.suites.partition.layers import layer_matmuls, measure_layer
from pytest_npubench.suites.partition.plan import PartitionPlan
from pytest_npubench.suites.partition.points import (
    SLOWEST,
    DecisionPoint,
    LayerPoint,
    OverlapPoint,
    PartitionPoint,
    RoundTripPoint,
    SplitPoint,
    timing_samples,
)

Shape = tuple[int, int]  # rows, columns
PROFILE_SHARE = 0.3  # of the campaign's budget
MIN_PROFILE_S = 4.0  # an operator, for one sample of each of its parts


class PartitionBench:
    """campaign.protocol.Bench of one pair, which `close` ends."""

    def __init__(self, runtime: Runtime, plan: PartitionPlan) -> None:
        partition = plan.partition
        self._pair: UnitPair = open_pair(partition.pair, standard_sizes=partition.standard_sizes, tile=partition.tile)
        self._plan = plan
        self._words = LastWords()
        self._references: dict[Matmul, NDArray[np.float32]] = {}
        self._decisions: dict[tuple[int, int, int], Decision] = {}

    def load(
        self,
        points: Sequence[PartitionPoint],
        earlier: Sequence[Mapping[str, Sequence[float]]],
        stage: Callable[[str], None],
    ) -> Mapping[str, str]:
        """A profile, where anything is to be decided; then weights and graphs of each operator, and what the GPU alone
        makes of it. An operator that cannot be had takes its points along."""
        failures = self._decide(points, stage)
        by_matmul: dict[Matmul, list[SplitPoint | DecisionPoint | OverlapPoint]] = {}
        for point in points:
            if isinstance(point, SplitPoint | DecisionPoint | OverlapPoint) and point.name not in failures:
                by_matmul.setdefault(point.matmul, []).append(point)
        for index, (matmul, own) in enumerate(by_matmul.items()):
            stage(f"compiling operator {index + 1}/{len(by_matmul)}")
            try:
                with self._words.kept():
                    self._load(matmul, [split for point in own for split in self._splits(point)])
            except Exception as error:  # noqa: BLE001 - no memory, a graph that does not compile: its cases say so
                failures |= {point.name: failure_reason(point.name, error) for point in own}
        return failures

    def _decide(self, points: Sequence[PartitionPoint], stage: Callable[[str], None]) -> dict[str, str]:
        """Measured at one token and at the sizes of graphs; lengths in between are what a solver has to predict."""
        undecided = {point: matmuls for point in points if (matmuls := self._undecided(point))}
        if not undecided:
            return {}
        wanted = {(matmul.rows, matmul.cols) for matmuls in undecided.values() for matmul in matmuls}
        profiles = self._profiles(wanted, stage)
        failures = {}
        for point, matmuls in undecided.items():
            try:
                self._decisions |= {
                    _key(matmul): solve(_had(profiles[matmul.rows, matmul.cols]), matmul) for matmul in matmuls
                }
            except (MeasurementError, PartitionError) as error:
                failures[point.name] = failure_reason(point.name, error)
        return failures

    def _profiles(
        self, shapes: Collection[Shape], stage: Callable[[str], None]
    ) -> Mapping[Shape, PartitionProfile | Exception]:
        """The profile that holds an operator, by its rows and columns, or why there is none: one profile for all of
        them, one for each where that fails, so that an operator without memory takes no other along."""
        try:
            return dict.fromkeys(shapes, self._profile(shapes, stage))
        except (MeasurementError, PartitionError) as error:
            self._pair.unload()
            if len(shapes) == 1:
                return dict.fromkeys(shapes, error)
        found: dict[Shape, PartitionProfile | Exception] = {}
        for shape in sorted(shapes):
            found |= self._profiles({shape}, stage)
        return found

    def _profile(self, shapes: Collection[Shape], stage: Callable[[str], None]) -> PartitionProfile:
        """Of the operators with these rows and columns."""
        return measure_profile(
            self._pair,
            [shape for shape in operators(self._plan.model) if (shape.rows, shape.cols) in shapes],
            (1, *self._plan.partition.standard_sizes),
            budget_s=max(self._plan.size.budget_s * PROFILE_SHARE, MIN_PROFILE_S * len(shapes)),
            options=self._plan.options,
            on_progress=lambda told: stage(f"profiling {told.operator}, round {told.num_rounds}"),
        )

    def _undecided(self, point: PartitionPoint) -> tuple[Matmul, ...]:
        if isinstance(point, LayerPoint):
            return layer_matmuls(self._plan.model, point.tokens)
        return (point.matmul,) if isinstance(point, DecisionPoint) else ()

    def _decided_split(self, matmul: Matmul) -> Split:
        return self._decisions[_key(matmul)].split

    def _splits(self, point: SplitPoint | DecisionPoint | OverlapPoint) -> tuple[Split, ...]:
        """What has to be loaded for a point."""
        if isinstance(point, OverlapPoint):
            return (row_split(point.matmul, point.gpu_share),)
        return (point.split if isinstance(point, SplitPoint) else self._decided_split(point.matmul),)

    def _load(self, matmul: Matmul, splits: Sequence[Split]) -> None:
        whole = alone(matmul, GPU)
        self._pair.load(matmul, tuple(dict.fromkeys((whole, *splits))))
        self._pair.run(matmul, whole)
        self._references[matmul] = self._pair.output(matmul).copy()

    def warm_up(self, point: PartitionPoint) -> tuple[float, bool]:
        """Once for the caches, once for the time; a split's output is checked in between.
        Raises MeasurementError where it is wrong."""
        self.sample(point, 0)
        if isinstance(point, SplitPoint | DecisionPoint):
            self._check(point)
        started_s = perf_counter()
        self.sample(point, 0)
        return perf_counter() - started_s, True

    def sample(self, point: PartitionPoint, round_index: int) -> Mapping[str, Sequence[float]]:
        """The figures of one visit, under the point's name."""
        with self._words.kept():
            return self._visit(point)

    def _visit(self, point: PartitionPoint) -> Mapping[str, Sequence[float]]:
        if isinstance(point, SplitPoint):
            mechanism = self._pair.mechanisms[-1] if point.mechanism == SLOWEST else point.mechanism
            return timing_samples(point, self._run(point.matmul, point.split, mechanism))
        if isinstance(point, DecisionPoint):
            return self._decided(point)
        if isinstance(point, RoundTripPoint):
            trips = ((name, self._pair.round_trips_s(name, point.num_trips)) for name in self._pair.mechanisms)
            return {f"{point.name}/{name}": found for name, found in trips}
        if isinstance(point, OverlapPoint):
            return self._overlap(point)
        if isinstance(point, LayerPoint):
            return measure_layer(self._pair, self._plan.model, point, self._decided_split, self._plan.options)
        found = self._pair.stream_bytes_per_s(point.units, point.num_bytes)
        return {f"{point.name}/{unit}": (rate,) for unit, rate in found.items()}

    def close(self) -> None:
        self._pair.close()

    def _decided(self, point: DecisionPoint) -> Mapping[str, Sequence[float]]:
        decision = self._decisions[_key(point.matmul)]
        place = all_splits(point.matmul, self._plan.options).index(decision.split)
        return {
            **timing_samples(point, self._run(point.matmul, decision.split)),
            f"{point.name}/place": (place,),
            f"{point.name}/predicted_s": (decision.predicted_s,),
        }

    def _run(self, matmul: Matmul, split: Split, mechanism: str | None = None) -> SplitTiming:
        """The second of two runs: a round visits all operators in turn, and the weights of the one before fill the
        caches, which a profile of one operator after the other does not see."""
        self._pair.run(matmul, split, mechanism=mechanism)
        return self._pair.run(matmul, split, mechanism=mechanism)

    def _overlap(self, point: OverlapPoint) -> Mapping[str, Sequence[float]]:
        """Chain and queue run inside the pair's own process."""
        pair, split = runs_chains(self._pair), row_split(point.matmul, point.gpu_share)
        found = {f"{point.name}/queued_s": (pair.run_queued(point.matmul, split, point.num_operators).total_s,)}
        for speed, mechanism in {"fast": pair.mechanisms[0], "slow": pair.mechanisms[-1]}.items():
            total_s, runs = pair.run_chain(point.matmul, split, point.num_operators, mechanism=mechanism)
            chain = Chain(total_s=total_s, operators=runs)
            found[f"{point.name}/{speed}_s"] = (chain.total_s,)
            found[f"{point.name}/{speed}_exposed_s"] = (chain.exposed_s,)
        return found

    def _check(self, point: SplitPoint | DecisionPoint) -> None:
        reference = self._references[point.matmul]
        error = float(np.abs(self._pair.output(point.matmul) - reference).max() / np.abs(reference).max())
        if not error <= MAX_RELATIVE_ERROR:
            what = f"{self._splits(point)[0].strategy} of {point.matmul.name}: its output"
            raise MeasurementError(f"{what} is off by {error:.2g} of the largest; want at most {MAX_RELATIVE_ERROR:g}")


def _had(profile: PartitionProfile | Exception) -> PartitionProfile:
    if isinstance(profile, Exception):
        raise profile
    return profile


def _key(matmul: Matmul) -> tuple[int, int, int]:
    """Operators of one shape are one to a solver, whatever their place."""
    return matmul.rows, matmul.cols, matmul.tokens
