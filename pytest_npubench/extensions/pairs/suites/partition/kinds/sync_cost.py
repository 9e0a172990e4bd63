"""What one unit's waiting for the other costs, by mechanism (HeteroInfer, sections 3.1 and 4.3, GPU-2).

Round trips by every mechanism of the pair, and the model's smallest operator, one token, with its rows halved: the
fastest mechanism decides whether such a split can be worth anything. The paper's slow one takes about 400 us, its fast
one a few. The case fails where the fastest mechanism's median trip is slower than the slowest one's;
what each takes is compared with accepted sessions as well, where both may have become slower alike.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.paired_rounds import all_visits, whole_rounds
from pytest_npubench.extensions.pairs.partition.descriptors import fit_sync
from pytest_npubench.extensions.pairs.partition.matmul import GPU, NPU, alone, row_split
from pytest_npubench.extensions.pairs.suites.partition.experiment import (
    PartitionExperiment,
    ratio_metric,
    total_s,
    unit_metrics,
)
from pytest_npubench.extensions.pairs.suites.partition.plan import PartitionPlan
from pytest_npubench.extensions.pairs.suites.partition.points import (
    SLOWEST,
    PairPoint,
    RoundTripPoint,
    RoundTripVisit,
    SplitPoint,
)
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

TRIPS = RoundTripPoint()
TRIP_MARGIN = 0.10  # a few microseconds on cores that others use too


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismDetail:
    """Seconds of a round trip. p99_s None: fewer than 100 trips."""

    mechanism: str
    p50_s: float
    p99_s: float | None
    num_trips: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncCostDetail:
    """mechanisms: the fastest first. Speed-ups: the better unit alone over the operator in halves, by the fastest and
    by the slowest. operator: rows, columns, tokens."""

    mechanisms: tuple[MechanismDetail, ...]
    fast_speedup: float
    slow_speedup: float
    operator: tuple[int, int, int]


class SyncCostKind(PartitionExperiment):
    name = "sync_cost"

    def points(self, case: Case, plan: PartitionPlan) -> tuple[PairPoint, ...]:
        return TRIPS, *_splits(plan)

    def judge(self, case: Case, plan: PartitionPlan, measured: Measured) -> Judgement:
        measured = whole_rounds(measured, self.points(case, plan))
        trips_s = _trips_s(measured)
        costs = [fit_sync(name, found) for name, found in trips_s.items()]
        gpu_s, npu_s, fast_s, slow_s = (total_s(measured, point) for point in _splits(plan))
        single_s = min(gpu_s, npu_s, key=statistics.median)
        fast = ratio_metric("fast_speedup", single_s, fast_s)
        slow = ratio_metric("slow_speedup", single_s, slow_s)
        ratio = costs[0].p50_s / costs[-1].p50_s
        matmul = _splits(plan)[0].matmul
        return Judgement(
            verdict=judge_gates((Gate(metric="fastest / slowest round trip", value=ratio, limit=1.0),)),
            what=f"one token of {matmul.name} in halves: best unit / split, fast and slow",
            metrics=(
                *unit_metrics(gpu_s, npu_s),
                fast,
                slow,
                *(
                    Metric(name=f"{cost.mechanism}_round_trip_s", unit="s", value=cost.p50_s, margin=TRIP_MARGIN)
                    for cost in costs
                ),
            ),
            detail=SyncCostDetail(
                mechanisms=tuple(
                    MechanismDetail(
                        mechanism=cost.mechanism,
                        p50_s=cost.p50_s,
                        p99_s=cost.p99_s,
                        num_trips=len(trips_s[cost.mechanism]),
                    )
                    for cost in costs
                ),
                fast_speedup=fast.value,
                slow_speedup=slow.value,
                operator=(matmul.rows, matmul.cols, matmul.tokens),
            ),
        )


def _trips_s(measured: Measured) -> dict[str, list[float]]:
    """Returns seconds of all trips, by mechanism."""
    trips: dict[str, list[float]] = {}
    for visit in all_visits(measured, TRIPS, RoundTripVisit):
        for mechanism, trips_s in visit.trips_s.items():
            trips.setdefault(mechanism, []).extend(trips_s)
    return trips


def _splits(plan: PartitionPlan) -> tuple[SplitPoint, ...]:
    """Returns the GPU and the NPU alone, and half of the rows each under the fastest and the slowest mechanism."""
    matmul = min((plan.matmul(name, 1) for name in plan.operator_names), key=lambda shape: shape.weight_elements)
    halves = row_split(matmul)
    return (
        SplitPoint(matmul=matmul, split=alone(matmul, GPU)),
        SplitPoint(matmul=matmul, split=alone(matmul, NPU)),
        SplitPoint(matmul=matmul, split=halves),
        SplitPoint(matmul=matmul, split=halves, mechanism=SLOWEST),
    )


KIND = SyncCostKind()
