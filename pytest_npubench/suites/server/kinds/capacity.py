"""The capacity of a server under one workload: the rate at which fewer than the wanted share attain their SLO.

Each round is a sweep of its own (suites/server/sweep.py), which looks for the rates itself. The limits stand in the
hardware file, so the capacity is held against accepted nights as it is of a scheduling policy
(campaign/served_capacity.py). A case fails where even the lowest rate, at which most requests find the server idle,
misses the limits in every round; it is invalid where the client was late. Ten blocks a round are more than a quick run
may take: the quick profile leaves the kind out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_capacity import attained, capacity_metric, capacity_of
from pytest_npubench.campaign.served_metrics import SloDetail
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.serving.capacity import Capacity
from pytest_npubench.serving.metrics import Slo
from pytest_npubench.suites.server.blocks import LoadBlock
from pytest_npubench.suites.server.lateness import why_late
from pytest_npubench.suites.server.plan import ServerPlan
from pytest_npubench.suites.server.points import SweepPoint
from pytest_npubench.suites.server.sweep import Sweep, SweptRate, in_words, knee, rates_of
from pytest_npubench.verdict import Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityDetail:
    """The capacity with its 95 % interval, an end None where it is not known, and why; the knee, and by rate what every
    block came to."""

    workload: str
    slo: SloDetail
    wanted_fraction: float
    capacity_per_s: float | None
    capacity_interval: tuple[float | None, float | None] | None
    why: str
    knee_per_s: float
    rates: tuple[SweptRate, ...]

    @classmethod
    def of(
        cls, workload: str, slo: Slo, wanted: float, capacity: Capacity, blocks: Sequence[LoadBlock]
    ) -> CapacityDetail:
        rates = rates_of(blocks)
        return cls(
            workload=workload,
            slo=SloDetail(ttft_s=slo.ttft_s, tbt_s=slo.tbt_s),
            wanted_fraction=wanted,
            capacity_per_s=capacity.rate_per_s,
            capacity_interval=capacity.interval,
            why=in_words(capacity, rates),
            knee_per_s=knee(rates).rate_per_s,
            rates=rates,
        )


class CapacityKind:
    name = "capacity"
    suite = "server"

    def axes(self, plan: ServerPlan) -> Iterable[Axes]:
        """One case for each workload; none where the hardware file has no limits, or wants all requests to attain."""
        is_swept = plan.spec.slos and plan.server.attainment < 1
        workloads = dict.fromkeys(load.workload for load in plan.loads) if is_swept else ()
        return ((("workload", workload),) for workload in workloads)

    def points(self, case: Case, plan: ServerPlan) -> tuple[SweepPoint, ...]:
        return (SweepPoint(workload=str(case.axis("workload"))),)

    def settled(self, case: Case, plan: ServerPlan, measured: Measured) -> bool:
        """min_rounds are what the case was planned with; more would load a server that others may use."""
        return True

    def judge(self, case: Case, plan: ServerPlan, measured: Measured) -> Judgement:
        (point,) = self.points(case, plan)
        sweeps = [sweep for (sweep,) in measured.visits(point.name, Sweep)]
        rounds, wanted = [sweep.blocks for sweep in sweeps], plan.server.attainment
        capacity, blocks = capacity_of(rounds, wanted), [block for blocks in rounds for block in blocks]
        return Judgement(
            verdict=_verdict(sweeps, wanted),
            what=f"capacity at {wanted:.0%} attainment",
            metrics=(capacity_metric("capacity", capacity, rounds),),
            detail=CapacityDetail.of(point.workload, blocks[0].limits, wanted, capacity, blocks),
        )


def _verdict(sweeps: Sequence[Sweep], wanted: float) -> Verdict:
    blocks = [block for sweep in sweeps for block in sweep.blocks]
    for block in blocks:
        if late := why_late(block):
            return Verdict(kind=VerdictKind.INVALID, reason=f"at {block.rate_per_s:.3g} requests/s {late}")
    lowest = [min(sweep.blocks, key=lambda block: block.rate_per_s) for sweep in sweeps]
    if all(attained(block) < wanted for block in lowest):
        tried = max(block.rate_per_s for block in lowest)
        reason = f"capacity below the lowest rate tried, {tried:.3g} requests/s"
        return Verdict(kind=VerdictKind.FAILED, reason=f"{reason}: fewer than {wanted:.0%} attain there in every round")
    return judge_gates(())


KIND = CapacityKind()
