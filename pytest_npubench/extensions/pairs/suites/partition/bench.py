"""Measures splits on an open pair of units: weights are made once, splits take turns on them.

Every split's output is compared with what the GPU alone makes of the operator, in float32, before it is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.campaign.rounds import failure_reason
from pytest_npubench.campaign.visits import Round, Visit
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import MeasurementError, PartitionError
from pytest_npubench.extensions.pairs.lost_unit import LastWords
from pytest_npubench.extensions.pairs.partition.matmul import GPU, Matmul, Split, alone
from pytest_npubench.extensions.pairs.partition.model_shapes import operators
from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile
from pytest_npubench.extensions.pairs.partition.profiler import measure_profile
from pytest_npubench.extensions.pairs.partition.regret import MAX_RELATIVE_ERROR
from pytest_npubench.extensions.pairs.partition.solver import solve
from pytest_npubench.extensions.pairs.partition.units import open_pair
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import OpenPair, OperatorPoint, PairPoint

Shape = tuple[int, int]  # rows, columns
PROFILE_SHARE = 0.3  # of the campaign's budget
MIN_PROFILE_S = 4.0  # an operator, for one sample of each of its parts


class PartitionBench:
    """campaign.protocol.Bench of one pair, which `close` ends."""

    def __init__(self, runtime: Runtime, plan: PartitionPlan) -> None:
        partition = plan.partition
        units = open_pair(partition.pair, standard_sizes=partition.standard_sizes, tile=partition.tile)
        self._opened = OpenPair(units=units, plan=plan)
        self._units, self._plan = units, plan
        self._words = LastWords()
        self._references: dict[Matmul, NDArray[np.float32]] = {}

    def load(
        self,
        points: Sequence[PairPoint],
        earlier: Sequence[Round],
        stage: Callable[[str], None],
    ) -> Mapping[str, str]:
        """A profile, where anything is to be decided; then weights and graphs of each operator, and what the GPU alone
        makes of it. An operator that cannot be had takes its points along."""
        failures = self._decide(points, stage)
        by_matmul: dict[Matmul, dict[str, Split]] = {}
        for point in points:
            for matmul, split in point.loads(self._opened) if point.name not in failures else ():
                by_matmul.setdefault(matmul, {})[point.name] = split
        for index, (matmul, splits) in enumerate(by_matmul.items()):
            stage(f"compiling operator {index + 1}/{len(by_matmul)}")
            try:
                with self._words.kept():
                    self._load(matmul, tuple(splits.values()))
            except Exception as error:  # noqa: BLE001 - no memory, a graph that does not compile: its cases say so
                failures |= {name: failure_reason(name, error) for name in splits}
        return failures

    def _decide(self, points: Sequence[PairPoint], stage: Callable[[str], None]) -> dict[str, str]:
        """Measured at one token and at the sizes of graphs; lengths in between are what a solver has to predict."""
        undecided = {point: matmuls for point in points if (matmuls := point.undecided(self._plan))}
        if not undecided:
            return {}
        wanted = {(matmul.rows, matmul.cols) for matmuls in undecided.values() for matmul in matmuls}
        profiles = self._profiles(wanted, stage)
        failures = {}
        for point, matmuls in undecided.items():
            try:
                for matmul in matmuls:
                    self._opened.decide(matmul, solve(_had(profiles[matmul.rows, matmul.cols]), matmul))
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
            self._units.unload()
            if len(shapes) == 1:
                return dict.fromkeys(shapes, error)
        profiles: dict[Shape, PartitionProfile | Exception] = {}
        for shape in sorted(shapes):
            profiles |= self._profiles({shape}, stage)
        return profiles

    def _profile(self, shapes: Collection[Shape], stage: Callable[[str], None]) -> PartitionProfile:
        """The profile of the operators with these rows and columns."""
        return measure_profile(
            self._units,
            [shape for shape in operators(self._plan.model) if (shape.rows, shape.cols) in shapes],
            (1, *self._plan.partition.standard_sizes),
            budget_s=max(self._plan.size.budget_s * PROFILE_SHARE, MIN_PROFILE_S * len(shapes)),
            options=self._plan.options,
            on_progress=lambda progress: stage(f"profiling {progress.operator}, round {progress.num_rounds}"),
        )

    def _load(self, matmul: Matmul, splits: Sequence[Split]) -> None:
        whole = alone(matmul, GPU)
        self._units.load(matmul, tuple(dict.fromkeys((whole, *splits))))
        self._units.run(matmul, whole)
        self._references[matmul] = self._units.output(matmul).copy()

    def warm_up(self, point: PairPoint) -> tuple[float, bool]:
        """Runs once for the caches, once for the time; a split's output is checked in between. Raises MeasurementError
        where it is wrong."""
        self.sample(point, 0)
        if isinstance(point, OperatorPoint):
            self._check(point)
        started_s = perf_counter()
        self.sample(point, 0)
        return perf_counter() - started_s, True

    def sample(self, point: PairPoint, round_index: int) -> Visit:
        with self._words.kept():
            return point.visit(self._opened)

    def close(self) -> None:
        self._units.close()

    def _check(self, point: OperatorPoint) -> None:
        reference = self._references[point.matmul]
        error = float(np.abs(self._units.output(point.matmul) - reference).max() / np.abs(reference).max())
        if not error <= MAX_RELATIVE_ERROR:
            what = f"{point.split_on(self._opened).strategy} of {point.matmul.name}: its output"
            raise MeasurementError(f"{what} is off by {error:.2g} of the largest; want at most {MAX_RELATIVE_ERROR:g}")


def _had(profile: PartitionProfile | Exception) -> PartitionProfile:
    if isinstance(profile, Exception):
        raise profile
    return profile
