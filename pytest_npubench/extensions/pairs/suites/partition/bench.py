"""Measures splits on an open pair of units: weights are made once, splits take turns on them.

Before it is timed, every split is run by every mechanism of the pair, and its output compared with the product in
float64.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from pytest_npubench.backends.protocol import Runtime
from pytest_npubench.campaign.rounds import failure_reason
from pytest_npubench.campaign.visits import Round, Visit
from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import MeasurementError, PartitionError
from pytest_npubench.extensions.pairs.partition.matmul import Matmul, Split
from pytest_npubench.extensions.pairs.partition.output_check import check_split_computes, exact_product
from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile
from pytest_npubench.extensions.pairs.partition.profiler import measure_profile
from pytest_npubench.extensions.pairs.partition.solver import solve
from pytest_npubench.extensions.pairs.partition.unit import LastWords
from pytest_npubench.extensions.pairs.partition.units import open_pair
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import OpenPair, PairPoint

Shape = tuple[int, int]  # rows, columns
PROFILE_SHARE = 0.3  # of the campaign's budget
MIN_PROFILE_S = 4.0  # an operator, for one sample of each of its parts


class PartitionBench:
    """campaign.protocol.Bench of one pair, which `close` ends."""

    def __init__(self, runtime: Runtime, plan: PartitionPlan) -> None:
        partition = plan.partition
        units = open_pair(plan.pair, standard_sizes=partition.standard_sizes, tile=partition.tile)
        self._opened = OpenPair(units=units, plan=plan)
        self._units, self._plan = units, plan
        self._words = LastWords()

    def load(
        self,
        points: Sequence[PairPoint],
        earlier: Sequence[Round],
        stage: Callable[[str], None],
    ) -> Mapping[str, str]:
        """Returns a profile, where anything is to be decided; then weights and graphs of each operator. An operator
        that cannot be had takes its points along, a split that computes something else its own."""
        failures = self._decide(points, stage)
        by_matmul: dict[Matmul, dict[str, Split]] = {}
        for point in points:
            for matmul, split in point.loads(self._opened) if point.name not in failures else ():
                by_matmul.setdefault(matmul, {})[point.name] = split
        for index, (matmul, splits) in enumerate(by_matmul.items()):
            stage(f"compiling operator {index + 1}/{len(by_matmul)}")
            failures |= self._load(matmul, splits)
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
        """Returns the profile that holds an operator, by its rows and columns, or why there is none: one profile for
        all of them, one for each where that fails, so that an operator without memory takes no other along."""
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
        """Returns the profile of the operators with these rows and columns."""
        return measure_profile(
            self._units,
            [shape for shape in self._plan.operators if (shape.rows, shape.cols) in shapes],
            (1, *self._plan.partition.standard_sizes),
            budget_s=max(self._plan.size.budget_s * PROFILE_SHARE, MIN_PROFILE_S * len(shapes)),
            options=self._plan.options,
            on_progress=lambda progress: stage(f"profiling {progress.operator}, round {progress.num_rounds}"),
        )

    def _load(self, matmul: Matmul, splits: Mapping[str, Split]) -> dict[str, str]:
        """Loads an operator's splits, by their points' names, and checks each. Returns why by name for those that
        cannot be used."""
        try:
            with self._words.kept():
                self._units.load(matmul, tuple(dict.fromkeys(splits.values())))
                exact = exact_product(self._units, matmul)
        except Exception as error:  # noqa: BLE001 - no memory, a graph that does not compile: its cases say so
            return {name: failure_reason(name, error) for name in splits}
        failures = {}
        for name, split in splits.items():
            try:
                with self._words.kept():
                    check_split_computes(self._units, exact, split)
            except Exception as error:  # noqa: BLE001 - likewise
                failures[name] = failure_reason(name, error)
        return failures

    def warm_up(self, point: PairPoint) -> tuple[float, bool]:
        """Checks what was not loaded before, then visits once for the caches and once for the time. Raises
        MeasurementError where an output is wrong."""
        with self._words.kept():
            point.check(self._opened)
        self.sample(point, 0)
        started_s = perf_counter()
        self.sample(point, 0)
        return perf_counter() - started_s, True

    def sample(self, point: PairPoint, round_index: int) -> Visit:
        with self._words.kept():
            return point.visit(self._opened)

    def close(self) -> None:
        self._units.close()


def _had(profile: PartitionProfile | Exception) -> PartitionProfile:
    if isinstance(profile, Exception):
        raise profile
    return profile
