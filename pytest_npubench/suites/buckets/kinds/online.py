"""LENS online: TTFT, TPOT and E2E of requests that are served as they arrive, predicted from a profile alone.

The profile's TTFT_b and TBT_b are step costs of the same serving loop on a virtual clock (engines/virtual/buckets.py),
which replays the arrivals of every round. Each round has a profile of its own points: a machine that slows down for a
round has queues there that no mean profile has. Requests of all rounds together give means and 99th percentiles; a case
fails where a mean is off by more than limits.mean_error, or a percentile by more than limits.case_error. The errors of
the median round stand beside them: what is wrong with the model is so in every round, what others on the machine did
while requests were served is not.

The rate is a share of what this machine serves, found at warm-up. No limit follows from it: the errors are ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import TYPE_CHECKING

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.visits import columns_of
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.core.measurement import CostRecord
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.buckets.plan import ONLINE, BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, served_name
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.predictors.profile import BucketProfile
    from pytest_npubench.serving.metrics import RequestRecord

FIGURES: Mapping[str, Callable[[RequestRecord], float | None]] = {
    "ttft": lambda record: record.ttft_s,
    "tpot": lambda record: record.tpot_s,
    "e2e": lambda record: record.e2e_latency_s,
}
P99 = 0.99
VISIT_S = 1.0  # of a profile point: each round is predicted from its own


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineFigure:
    """Measured and predicted seconds of one figure over all requests that have it; round_mean_error and
    round_p99_error: errors of the median round, None in journals from before they were told."""

    mean_s: float
    predicted_mean_s: float
    p99_s: float
    predicted_p99_s: float
    round_mean_error: float | None = None
    round_p99_error: float | None = None

    @property
    def mean_error(self) -> float:
        """Of all requests together."""
        return self.predicted_mean_s / self.mean_s - 1

    @property
    def p99_error(self) -> float:
        return self.predicted_p99_s / self.p99_s - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineDetail:
    """figures by name: ttft, tpot, e2e. cost is that of the profile, all buckets together."""

    workload: str
    rate_per_s: float
    num_requests: int
    num_rounds: int
    figures: Mapping[str, OnlineFigure]
    cost: CostRecord


class OnlineKind:
    name = ONLINE
    suite = "buckets"

    def axes(self, plan: BucketPlan) -> Iterable[Axes]:
        return ((("workload", workload),) for workload in plan.size.workloads)

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        profiled = (plan.profile_point(point) for point in plan.profile_points(plan.buckets))
        workload = str(case.axis("workload"))
        return (
            *(replace(point, visit_s=VISIT_S) for point in (*profiled, *plan.moves(plan.buckets[1:]))),
            BucketPoint(name=served_name(workload), workload=workload),
        )

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        from pytest_npubench.campaign.served_block import ServedBlock
        from pytest_npubench.predictors.two_point import count_cost
        from pytest_npubench.stats.error import repeat_error
        from pytest_npubench.suites.buckets.profile_samples import lens_profile, profile_samples

        workload = str(case.axis("workload"))
        name = served_name(workload)
        measured.visits(name, ServedBlock)  # raises where there are none
        rounds = [replace(measured, rounds=[row]) for row in measured.rounds if columns_of(row, name)]
        blocks = [one.visits(name, ServedBlock)[0][0] for one in rounds]
        profiles = [lens_profile(plan, one, plan.buckets) for one in rounds]
        found = figures(
            [
                (block.records, predicted(plan, profile, block.records))
                for block, profile in zip(blocks, profiles, strict=True)
            ]
        )
        gates = [
            gate
            for name, figure in found.items()
            for gate in (
                Gate(metric=f"{name} mean error", value=abs(figure.mean_error), limit=plan.mean_error, unit="%"),
                Gate(metric=f"{name} p99 error", value=abs(figure.p99_error), limit=plan.case_error, unit="%"),
            )
        ]
        samples = profile_samples(plan, measured, plan.buckets)
        e2e = found["e2e"]
        return Judgement(
            verdict=judge_gates(tuple(gates)),
            what=f"mean E2E of {sum(len(block.records) for block in blocks)} requests",
            metrics=tuple(
                Metric(name=gate.metric.replace(" ", "_"), unit="", value=gate.value, gate="difference")
                for gate in gates
            ),
            measured_s=e2e.mean_s,
            predicted_s=e2e.predicted_mean_s,
            error=e2e.mean_error,
            repeat_error=repeat_error([fmean(one.e2e_latency_s for one in block.records) for block in blocks]),
            detail=OnlineDetail(
                workload=workload,
                rate_per_s=fmean(block.rate_per_s for block in blocks),
                num_requests=plan.num_requests,
                num_rounds=len(blocks),
                figures=found,
                cost=count_cost(samples.compiles, samples.samples_s, sessions=1),
            ),
        )

    def settled(self, case: Case, plan: BucketPlan, measured: Measured) -> bool:
        """min_rounds are what the load was planned with."""
        return True


def predicted(plan: BucketPlan, profile: BucketProfile, records: Sequence[RequestRecord]) -> tuple[RequestRecord, ...]:
    """The same requests at the same times, on a virtual clock whose steps cost what the profile says."""
    from pytest_npubench.engines.shapes import dense_shape
    from pytest_npubench.engines.virtual.buckets import BucketCost
    from pytest_npubench.engines.virtual.executor import VirtualExecutor
    from pytest_npubench.serving.clock import VirtualClock
    from pytest_npubench.serving.request import ServingRequest
    from pytest_npubench.suites.buckets.online_serving import serve_slots

    longest = plan.buckets[-1]
    executor = VirtualExecutor(
        dense_shape(plan.model),
        None,
        tensor_parallel=plan.spec.tensor_parallel,
        dtype=plan.spec.dtype,
        kv_capacity_tokens=plan.batch_size * longest,
        block_size_tokens=longest,
        cost=BucketCost({plan.batch_size: profile}),
    )
    requests = [
        ServingRequest(
            id=one.id,
            arrival_s=one.arrival_s,
            prompt_tokens=one.prompt_tokens or 1,
            output_tokens=one.output_tokens or 1,
        )
        for one in records
    ]
    return serve_slots(requests, executor, VirtualClock()).records


def figures(rounds: Sequence[tuple[Sequence[RequestRecord], Sequence[RequestRecord]]]) -> dict[str, OnlineFigure]:
    """By name, of measured and predicted requests of each round. Raises MeasurementError where no request has more than
    one token."""
    found = {}
    for name, of in FIGURES.items():
        values = [[[value for one in side if (value := of(one)) is not None] for side in row] for row in rounds]
        told = [row for row in values if row[0]]
        if not told:
            raise MeasurementError(
                f"no request of {sum(len(row[0]) for row in rounds)} has a {name}; want requests of two tokens and more"
            )
        means, tails = ([[of_side(side) for side in row] for row in told] for of_side in (fmean, _p99))
        real, virtual = ([value for row in told for value in row[side]] for side in (0, 1))
        found[name] = OnlineFigure(
            mean_s=fmean(real),
            predicted_mean_s=fmean(virtual),
            p99_s=_p99(real),
            predicted_p99_s=_p99(virtual),
            round_mean_error=median(predicted_s / real_s - 1 for real_s, predicted_s in means),
            round_p99_error=median(predicted_s / real_s - 1 for real_s, predicted_s in tails),
        )
    return found


def _p99(values: Sequence[float]) -> float:
    import numpy as np

    return float(np.quantile(values, P99))


KIND = OnlineKind()
