"""LENS online: TTFT, TPOT and E2E of requests that are served as they arrive, predicted from a profile alone.

The profile's TTFT_b and TBT_b are step costs of the same serving loop on a virtual clock (planning/virtual/buckets.py),
which replays the arrivals of every round. Each round has a profile of its own points: a machine that slows down for a
round has queues there that no mean profile has. What a pause and a prompt that joins others cost beside it
is told by the pairs of all rounds (joining_pairs.py). Requests of all rounds together give means and 99th percentiles
(latency_errors.py); a case fails where a mean is off by more than limits.mean_error, or a percentile by more than
limits.case_error. In ten rounds the worst queue alone makes the percentile of TTFT, and whatever its machine did makes
the error; ROUNDS have several.

The rate is a share of what this machine serves, found at warm-up. No limit follows from it: the errors are ratios.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.visits import columns_of
from pytest_npubench.core.case import Case
from pytest_npubench.core.measurement import CostRecord, LatencyError
from pytest_npubench.suites.buckets.kinds import BucketKind
from pytest_npubench.suites.buckets.plan import ONLINE, BucketPlan
from pytest_npubench.suites.buckets.points import BucketPoint, pair_name, served_name
from pytest_npubench.suites.protocol import ShownKind
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

if TYPE_CHECKING:
    from pytest_npubench.backends.protocol import Runtime
    from pytest_npubench.campaign.protocol import Bench
    from pytest_npubench.engines.static_buckets import StaticBuckets
    from pytest_npubench.extensions.planning.virtual.buckets import BucketCost
    from pytest_npubench.serving.metrics import RequestRecord
    from pytest_npubench.verdict.case_record import CaseRecord, Cases

ROUNDS = 40  # requests queue in one of ten: the 99th percentile of TTFT is made in those
VISIT_S = 1.0  # of a profile point: each round is predicted from its own


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineDetail:
    """figures by name of the latency: ttft, tpot, e2e. cost is that of the profile, all buckets together, beside which
    num_pairs of requests were served in pairs_s, pauses counted (planning/joining_pairs.py)."""

    workload: str
    rate_per_s: float
    num_requests: int
    num_rounds: int
    figures: Mapping[str, LatencyError]
    cost: CostRecord
    num_pairs: int
    pairs_s: float


class OnlineKind(BucketKind, ShownKind):
    name = ONLINE
    axis = "workload"

    def points(self, case: Case, plan: BucketPlan) -> tuple[BucketPoint, ...]:
        profiled = (plan.profile_point(point) for point in plan.profile_points(plan.buckets))
        workload = str(case.axis("workload"))
        return (
            *(replace(point, visit_s=VISIT_S) for point in (*profiled, *plan.moves(plan.buckets[1:]))),
            BucketPoint(name=served_name(workload), workload=workload),
            plan.pair_point(workload),
        )

    def judge(self, case: Case, plan: BucketPlan, measured: Measured) -> Judgement:
        from pytest_npubench.campaign.served_block import ServedBlock
        from pytest_npubench.extensions.planning.joining_pairs import PairVisit, joining_s, waking_s
        from pytest_npubench.extensions.planning.latency_errors import latency_errors
        from pytest_npubench.extensions.planning.virtual.buckets import BucketCost
        from pytest_npubench.predictors.two_point import count_cost
        from pytest_npubench.stats.error import repeat_error
        from pytest_npubench.suites.buckets.profile_samples import lens_profile, profile_samples

        workload = str(case.axis("workload"))
        name = served_name(workload)
        measured.visits(name, ServedBlock)  # raises where there are none
        rounds = [replace(measured, rounds=[row]) for row in measured.rounds if columns_of(row, name)]
        blocks = [one.visits(name, ServedBlock)[0][0] for one in rounds]
        profiles = [lens_profile(plan, one, plan.buckets) for one in rounds]
        smallest = plan.buckets[0]
        pairs = [
            (pair, profile.buckets[smallest])
            for one, profile in zip(rounds, profiles, strict=True)
            for pair in one.visits(pair_name(smallest), PairVisit)[0]
        ]
        waking, joining = waking_s(pairs), joining_s(pairs)
        costs = (BucketCost({plan.batch_size: profile}, waking_s=waking, joining_s=joining) for profile in profiles)
        errors = latency_errors(
            [
                (block.records, (predicted(plan, cost, block.records),))
                for block, cost in zip(blocks, costs, strict=True)
            ]
        )
        gates = [
            gate
            for name, figure in errors.items()
            for gate in (
                Gate(metric=f"{name} mean error", value=abs(figure.mean_error), limit=plan.mean_error, unit="%"),
                Gate(metric=f"{name} p99 error", value=abs(figure.p99_error), limit=plan.case_error, unit="%"),
            )
        ]
        samples = profile_samples(plan, measured, plan.buckets)
        e2e = errors["e2e"]
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
                figures=errors,
                cost=count_cost(samples.compiles, samples.samples_s, sessions=1),
                num_pairs=len(pairs),
                pairs_s=sum(max(pair.first_s[-1], pair.second_s[-1]) for pair, _ in pairs),
            ),
        )

    def bench(self, runtime: Runtime, plan: BucketPlan, engine: StaticBuckets) -> Bench[Any]:
        """What measures an online campaign on the reference decoder."""
        from pytest_npubench.extensions.planning.online_bench import OnlineBench

        return OnlineBench(runtime, plan, engine)

    def settled(self, case: Case, plan: BucketPlan, measured: Measured) -> bool:
        return len(measured.rounds) >= ROUNDS

    def lines(self, cases: Cases) -> Sequence[str]:
        return online_lines(cases.of(self.name, OnlineDetail))


def predicted(plan: BucketPlan, cost: BucketCost, records: Sequence[RequestRecord]) -> tuple[RequestRecord, ...]:
    """The same requests at the same times, on a virtual clock of these costs."""
    from pytest_npubench.engines.shapes import dense_shape
    from pytest_npubench.extensions.planning.slots import serve_slots
    from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
    from pytest_npubench.serving.clock import VirtualClock
    from pytest_npubench.serving.request import ServingRequest

    longest = plan.buckets[-1]
    executor = VirtualExecutor(
        dense_shape(plan.model),
        None,
        tensor_parallel=plan.spec.tensor_parallel,
        dtype=plan.spec.dtype,
        kv_capacity_tokens=plan.batch_size * longest,
        block_size_tokens=longest,
        cost=cost,
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


def online_lines(cases: Sequence[CaseRecord[OnlineDetail]]) -> list[str]:
    """One for each case: "LENS online, lens-sharegpt at 8.4 req/s on 4 slots: TTFT -1.00% (p99 +2.00%), ...; in the
    median of 10 rounds TTFT ...; profile: ...; 320 pairs in 94.2 s"."""
    from pytest_npubench.suites.buckets.report.profile import cost_words

    return [
        f"{_errors(case)}; profile: {cost_words([case.detail.cost])}; {case.detail.num_pairs} pairs "
        f"in {case.detail.pairs_s:.1f} s"
        for case in cases
    ]


def _errors(case: CaseRecord[OnlineDetail]) -> str:
    detail = case.detail
    pooled = _in_words((name, one.mean_error, one.p99_error) for name, one in detail.figures.items())
    typical = _in_words((name, one.round_mean_error, one.round_p99_error) for name, one in detail.figures.items())
    return (
        f"LENS online, {detail.workload} at {detail.rate_per_s:.3g} req/s on {case.batch_size} slots: {pooled}; "
        f"in the median of {detail.num_rounds} rounds {typical}"
    )


def _in_words(errors: Iterable[tuple[str, float, float]]) -> str:
    return ", ".join(f"{name.upper()} {mean:+.2%} (p99 {tail:+.2%})" for name, mean, tail in errors)


KIND = OnlineKind()
