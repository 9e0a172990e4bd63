"""Measures a profile on an open pair within a budget (HeteroInfer, section 4.4, Performance Profiler: 20 minutes).

Operator by operator, so that only one operator's weights are in memory, each with an equal share of what is left of the
budget. First every point once, the most valuable first: the units alone on the whole operator, then on shares of its
rows, then both units at once. Then rounds over all points in shuffled order, until each has max_rounds samples or the
share is used up. Parts are measured as operators of their own: fewer rows are a smaller weight.

Worked number: 60 s for 3 operators, the first done after 10 s: the second has 25 s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.errors import PartitionError
from pytest_npubench.extensions.pairs.partition.descriptors import fit_sync
from pytest_npubench.extensions.pairs.partition.matmul import NPU
from pytest_npubench.extensions.pairs.partition.model_shapes import OperatorShape, distinct
from pytest_npubench.extensions.pairs.partition.operator_session import OperatorSession
from pytest_npubench.extensions.pairs.partition.options import SplitOptions
from pytest_npubench.extensions.pairs.partition.profile import PartitionProfile, SyncLatency
from pytest_npubench.extensions.pairs.partition.profile_fingerprint import pair_facts
from pytest_npubench.extensions.pairs.partition.profile_points import PartPoint
from pytest_npubench.extensions.pairs.partition.profile_records import ProfileRecords
from pytest_npubench.extensions.pairs.partition.unit import UnitPair

NUM_TRIPS, MIN_TRIPS = 200, 20
SYNC_SHARE = 0.1  # of the budget; on a machine that is busy otherwise a trip takes a time slice
MAX_ROUNDS = 9


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
    """The profile of these operators at these token counts, is_finished where every point has 3 samples or more.

    mechanism None: the pair's fastest, which the profile lists first. unfinished: a profile to go on with; its samples
    count. The pair is left without operators.

    Raises PartitionError for no operators, lengths below 1 or none, a budget not above 0, and an unfinished profile of
    other options or measured elsewhere; UnitLostError and MeasurementError as the pair does.
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

    Raises PartitionError on an unknown mechanism.
    """
    if mechanism is not None and mechanism not in pair.mechanisms:
        raise PartitionError(f"the pair has no synchronisation by {mechanism!r}; it has {', '.join(pair.mechanisms)}")
    smallest = min(options.standard_sizes, default=1)
    point = PartPoint(unit=NPU, rows=options.tile, cols=cols, tokens=smallest)
    pair.load(point.matmul, (point.split,))
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
