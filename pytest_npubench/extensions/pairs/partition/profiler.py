"""Measures a profile on an open pair within a budget (HeteroInfer, section 4.4, Performance Profiler: 20 minutes).

Operator by operator, so that only one operator's weights are in memory, each with an equal share of what is left of the
budget. First every point once, the most valuable first: the units alone on the whole operator, then on shares of its
rows, then both units at once. Then rounds over all points in shuffled order, until each has max_rounds samples or the
share is used up. Parts are measured as operators of their own: fewer rows are a smaller weight. Before any of a point's
times is taken, its outputs are held against float64 by each way of waiting (output_check.py).

Worked number: 60 s for 3 operators, the first done after 10 s: the second has 25 s.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import MeasurementError, PartitionError
from pytest_npubench.extensions.pairs.partition.descriptors import fit_sync
from pytest_npubench.extensions.pairs.partition.latency import LatencyModel
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU
from pytest_npubench.extensions.pairs.partition.model_shapes import OperatorShape, distinct
from pytest_npubench.extensions.pairs.partition.number_formats import RESULT_BYTES
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.output_check import ExactProduct, check_split_computes, exact_product
from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile, PartKey, SyncLatency
from pytest_npubench.extensions.pairs.partition.profile_file import pair_facts
from pytest_npubench.extensions.pairs.partition.profile_points import (
    PartPoint,
    TogetherPoint,
    part_points,
    together_points,
)
from pytest_npubench.extensions.pairs.partition.profile_records import ProfileRecords
from pytest_npubench.extensions.pairs.partition.unit import UnitPair, load_cold, visit

NUM_TRIPS, MIN_TRIPS = 200, 20
SYNC_SHARE = 0.1  # of the budget; on a machine that is busy otherwise a trip takes a time slice
MAX_ROUNDS = 9
Point = PartPoint | TogetherPoint
MIN_ROUNDS = 3
LARGEST_FACTOR = 10.0  # a slowdown beyond it, or below its inverse, is a disturbance


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileProgress:
    """After `num_rounds` rounds over the points of an operator, the number-th of num_operators."""

    operator: str
    number: int
    num_operators: int
    num_rounds: int
    elapsed_s: float


def measure_profile(
    pair: UnitPair,
    operators: Iterable[OperatorShape],
    lengths: Sequence[int],
    *,
    budget_s: float,
    options: SplitOptions,
    mechanism: str | None = None,
    on_progress: Callable[[ProfileProgress], None] | None = None,
    unfinished: PartitionProfile | None = None,
    max_rounds: int = MAX_ROUNDS,
    seed: int = 0,
    clock: Callable[[], float] = perf_counter,
) -> PartitionProfile:
    """Returns the profile of these operators at these token counts, is_finished where every point has 3 samples or
    more.

    mechanism None: the pair's fastest, which the profile lists first. unfinished: a profile to go on with; its samples
    count. The pair is left without operators.

    Raises PartitionError for no operators, lengths below 1 or none, a budget not above 0, and an unfinished profile of
    other options or measured elsewhere; UnitLostError and MeasurementError as the pair does, and MeasurementError for a
    unit that computes something else.
    """
    shapes, wanted = distinct(tuple(operators)), sorted(set(lengths))
    if not shapes or not wanted or wanted[0] < 1 or not budget_s > 0:
        raise PartitionError(
            f"{len(shapes)} operators, lengths {tuple(lengths)}, {budget_s} s; want one or more of each, above 0"
        )
    facts, begin_s = pair_facts(pair), clock()
    _check_unfinished(unfinished, facts, options)
    records = ProfileRecords(unfinished)
    costs_s = _sync_costs_s(pair, mechanism, shapes[0].cols, options, lambda: clock() > begin_s + budget_s * SYNC_SHARE)
    records.syncs = {name: _sync(name, samples_s) for name, samples_s in costs_s.items()}
    is_finished = True
    for index, shape in enumerate(shapes):
        share_s = (begin_s + budget_s - clock()) / (len(shapes) - index)
        session = OperatorSession(
            pair, records, mechanism=mechanism, until_s=clock() + share_s, clock=clock, seed=seed + index
        )

        def report(num_rounds: int, number: int = index + 1, name: str = shape.name) -> None:
            if on_progress is not None:
                on_progress(
                    ProfileProgress(
                        operator=name,
                        number=number,
                        num_operators=len(shapes),
                        num_rounds=num_rounds,
                        elapsed_s=clock() - begin_s,
                    )
                )

        is_finished &= session.measure(shape, wanted, options, max_rounds, report)
        pair.unload()
    return records.profile(facts, options, is_finished=is_finished)


def _sync_costs_s(
    pair: UnitPair, mechanism: str | None, cols: int, options: SplitOptions, is_over: Callable[[], bool]
) -> Mapping[str, Sequence[float]]:
    """By mechanism, the one that the profile is measured with first: what the static unit's smallest graph costs beyond
    its own time. A signal there and back is less: work must also be put where the other unit finds it.

    Raises PartitionError on an unknown mechanism, MeasurementError where that graph computes something else.
    """
    if mechanism is not None and mechanism not in pair.mechanisms:
        raise PartitionError(f"the pair has no synchronisation by {mechanism!r}; it has {', '.join(pair.mechanisms)}")
    smallest = min(options.standard_sizes, default=1)
    point = PartPoint(unit=NPU, rows=options.tile, cols=cols, tokens=smallest)
    pair.load(point.matmul, (point.split,))
    check_split_computes(pair, exact_product(pair, point.matmul), point.split)
    names = sorted(pair.mechanisms, key=lambda name: name != mechanism)
    costs_s: dict[str, list[float]] = {name: [] for name in names}
    for number in range(NUM_TRIPS):
        if number >= MIN_TRIPS and is_over():
            break
        for name in names:
            costs_s[name].append(pair.run(point.matmul, point.split, mechanism=name).sync_s)
    return costs_s


def _sync(mechanism: str, costs_s: Sequence[float]) -> SyncLatency:
    cost = fit_sync(mechanism, [max(0.0, seconds) for seconds in costs_s])
    return SyncLatency(mechanism=mechanism, p50_s=cost.p50_s, p99_s=cost.p99_s or cost.p50_s)


def _check_unfinished(profile: PartitionProfile | None, facts: Mapping[str, str], options: SplitOptions) -> None:
    if profile is None:
        return
    profile.check_fingerprint(facts)
    if profile.options != options:
        raise PartitionError(f"the unfinished profile is of {profile.options}; want {options}")


class OperatorSession:
    """Measures the points of one operator into `records` until its share of the budget ends, at until_s on `clock`.

    A slowdown is a ratio within one round: time beside the other unit over time alone in the same round. Where one unit
    works on alone at the end, only the stretch with company counts (the inverse of latency.ends_together_s).

    Worked number: alone 300 and 400 us, together 360 and 472 us: the GPU is slower by 360 / 300 = 1.2; the NPU did
    400 - (472 - 360) = 288 us of its work in 360 us, so it is slower by 1.25.
    """

    def __init__(
        self,
        pair: UnitPair,
        records: ProfileRecords,
        *,
        mechanism: str | None,
        until_s: float,
        clock: Callable[[], float],
        seed: int,
    ) -> None:
        self._pair = pair
        self._records = records
        self._mechanism = mechanism
        self._until_s = until_s
        self._clock = clock
        self._random = random.Random(seed)
        self._loaded: set[Point] = set()
        self._exact: ExactProduct | None = None
        self._exposures: dict[TogetherPoint, int] = {}

    def measure(
        self,
        shape: OperatorShape,
        lengths: Sequence[int],
        options: SplitOptions,
        max_rounds: int,
        on_round: Callable[[int], None],
    ) -> bool:
        """Whether every point has MIN_ROUNDS samples in the end. on_round is told the number of rounds so far."""
        points: list[Point] = list(part_points(shape, lengths, options))
        self._pass_over([point for point in points if not self._num_samples(point)])
        model = LatencyModel(self._records.profile({}, options, is_finished=False))
        points += together_points(shape, lengths, options, model)
        self._pass_over([point for point in points if not self._num_samples(point)])
        on_round(1)
        for num_rounds in range(2, max_rounds + 1):
            wanting = [point for point in points if self._num_samples(point) < max_rounds]
            if self._is_over() or not wanting:
                break
            self._random.shuffle(wanting)
            # the scarcest first, so that a share that runs out, or an earlier one that did, leaves no point behind
            wanting.sort(key=lambda point: min(self._num_samples(point), MIN_ROUNDS))
            self._pass_over(wanting)
            on_round(num_rounds)
        return all(self._num_samples(point) >= MIN_ROUNDS for point in points)

    def _pass_over(self, points: Sequence[Point]) -> None:
        """One sample of each, those with both units last, so that each has its parts' times of this round."""
        alone_s: dict[PartKey, float] = {}
        for point in sorted(points, key=lambda point: isinstance(point, TogetherPoint)):
            if self._is_over():
                return
            self._load(point)
            if isinstance(point, PartPoint):
                alone_s[point.key] = self._visit_alone(point)
            else:
                self._visit_together(point, alone_s)

    def _load(self, point: Point) -> None:
        """Loads, keeps the time of new graphs, and checks the outputs of unmeasured runs: the first run pays for what
        is not there. Both units on one operator come one after the other, and share its product."""
        if point in self._loaded:
            return
        if point.is_cold:
            self._records.graphs |= load_cold(self._pair, point.matmul, (point.split,))
        else:
            self._records.graphs |= self._pair.load(point.matmul, (point.split,))
        if self._exact is None or self._exact.matmul != point.matmul:
            self._exact = exact_product(self._pair, point.matmul)
        check_split_computes(self._pair, self._exact, point.split)
        self._loaded.add(point)

    def _visit_alone(self, point: PartPoint) -> float:
        timing = visit(self._pair, point.matmul, point.split, self._mechanism, is_cold=point.is_cold)
        busy_s = timing.gpu_s if point.unit == GPU else timing.npu_s
        if busy_s is None:
            raise MeasurementError(f"the {point.unit} has no time for {point.split}")
        if point.unit == NPU and timing.copy_s > 0:
            self._records.copies.setdefault(point.rows * point.tokens * RESULT_BYTES[point.dtype], []).append(
                timing.copy_s
            )
        alone_s = max(0.0, busy_s - timing.copy_s) if point.unit == NPU else busy_s
        self._records.latencies.setdefault(point.key, []).append(alone_s)
        return alone_s

    def _visit_together(self, point: TogetherPoint, alone_s: dict[PartKey, float]) -> None:
        timing = visit(self._pair, point.matmul, point.split, self._mechanism, is_cold=point.is_cold)
        if timing.gpu_s is None or timing.npu_s is None:
            raise MeasurementError(f"a unit has no time for {point.split}")
        if timing.gpu_s > timing.npu_s:
            self._records.exposed_sync_s[point.matmul.tokens == 1].append(timing.sync_s)
        self._exposures[point] = self._exposures.get(point, 0) + 1
        known_s = {key: statistics.median(samples) for key, samples in self._records.latencies.items()} | alone_s
        if point.is_balanced and all(key in known_s for unit in (GPU, NPU) for key in point.alone(unit)):
            gpu_s, npu_s = (sum(known_s[key] for key in point.alone(unit)) for unit in (GPU, NPU))
            factors = company_factors(gpu_s, npu_s, timing.gpu_s, timing.npu_s - timing.copy_s)
            if factors is not None:
                self._records.add_slowdown(point.key, *factors)

    def _num_samples(self, point: Point) -> int:
        if isinstance(point, PartPoint):
            return len(self._records.latencies.get(point.key, ()))
        before = len(self._records.slowdowns.get(point.key, ((), ()))[0]) if point.is_balanced else 0
        return max(before, self._exposures.get(point, 0))

    def _is_over(self) -> bool:
        return self._clock() >= self._until_s


def company_factors(gpu_s: float, npu_s: float, gpu_beside_s: float, npu_beside_s: float) -> tuple[float, float] | None:
    """(GPU's, NPU's) slowdown from their times alone and beside each other; None where the times make no sense."""
    company_s = min(gpu_beside_s, npu_beside_s)
    done_s = (gpu_s - (gpu_beside_s - company_s), npu_s - (npu_beside_s - company_s))
    if company_s <= 0 or min(done_s) <= 0:
        return None
    gpu, npu = company_s / done_s[0], company_s / done_s[1]
    return (gpu, npu) if min(gpu, npu) * LARGEST_FACTOR > 1 and max(gpu, npu) < LARGEST_FACTOR else None
