"""SLO attainment against the rate, by its two limits, and the capacity of each policy (Layered Prefill, Figs. 3, 4).

Blocks at several rates under layered and chunked prefill; a curve through all gives the rate at 90 % attainment.
The paper's capacities stand in a ratio of 1.14 to 1.45. The case fails where layered prefill's capacity is proven to be
the smaller one, and is inconclusive where a policy's attainment does not cross 90 % at the rates tried. A block is
short, so its queue is never as long as that of a service that goes on: these capacities are for comparing policies.
"""

from __future__ import annotations

from dataclasses import replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.serving.blocks import Block, blocks
from pytest_npubench.campaign.serving.experiment import Experiment
from pytest_npubench.campaign.serving.plan import ServingPlan
from pytest_npubench.campaign.serving.points import ServedPoint
from pytest_npubench.campaign.serving.policies import served
from pytest_npubench.case import Case
from pytest_npubench.result import Judgement, Metric
from pytest_npubench.serving.capacity import Capacity, CapacityRun, capacity_ratio, estimate
from pytest_npubench.serving.metrics import attainment_split
from pytest_npubench.serving_spec import LoadSpec
from pytest_npubench.verdict import Gate, Verdict, VerdictKind, judge_gates

POLICIES = ("layered", "chunked")
FACTORS = (0.8, 1.2, 1.6, 2.0, 2.6, 3.2)  # of the load's own rate


class AttainmentKind(Experiment):
    name = "attainment"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        load = plan.load(case)
        return tuple(served(policy, plan, scaled(load, factor)) for policy in POLICIES for factor in FACTORS)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        found = [blocks(measured, point) for point in self.points(case, plan)]
        by_policy = dict(zip(POLICIES, (found[: len(FACTORS)], found[len(FACTORS) :]), strict=True))
        capacities = {policy: _capacity(served_at) for policy, served_at in by_policy.items()}
        ratio = capacity_ratio(capacities["layered"], capacities["chunked"])
        detail = {
            "factors": FACTORS,
            "rate_per_s": [served_at[0].rate_per_s for served_at in by_policy["layered"]],
            "attainment": {policy: list(map(_split, served_at)) for policy, served_at in by_policy.items()},
            "capacity": {policy: [found.rate_per_s, found.interval] for policy, found in capacities.items()},
            "capacity_ratio": ratio.value,
            "capacity_ratio_interval": ratio.interval,
            "why": {policy: capacity.why for policy, capacity in capacities.items()},
            "published": "Layered Prefill, Fig. 3: capacities in a ratio of 1.14 to 1.45",
        }
        what = "capacity at 90 % attainment, layered / chunked"
        if ratio.value is None:
            return Judgement(verdict=Verdict(kind=VerdictKind.INCONCLUSIVE, reason=ratio.why), what=what, detail=detail)
        highest = ratio.interval[1] if ratio.interval else ratio.value
        return Judgement(
            verdict=judge_gates(
                (Gate(metric="capacity, chunked / layered at the least", value=1 / highest, limit=1.0),)
            ),
            what=what,
            metrics=(
                Metric(name="capacity_ratio", unit="ratio", value=ratio.value, better="higher"),
                *(_rate(policy, capacity) for policy, capacity in capacities.items()),
            ),
            detail=detail,
        )


def scaled(load: LoadSpec, factor: float) -> LoadSpec:
    if load.rate_per_s is not None:
        return replace(load, rate_per_s=load.rate_per_s * factor)
    assert load.utilisation is not None
    return replace(load, utilisation=load.utilisation * factor)


def _capacity(served_at: list[tuple[Block, ...]]) -> Capacity:
    runs = [
        CapacityRun(
            rate_per_s=block.rate_per_s,
            seed=index,
            num_attained=round(attainment_split(block.records, block.slo)[0] * len(block.records)),
            num_arrived=len(block.records),
            spent_s=block.ended_s - block.started_s,
        )
        for found in served_at
        for index, block in enumerate(found)
    ]
    rates = [run.rate_per_s for run in runs]
    return estimate(runs, low=min(rates), high=max(rates))


def _split(found: tuple[Block, ...]) -> tuple[float, float, float]:
    """Attainment of both limits, of TTFT and of TBT, over the requests of all rounds at one rate."""
    return attainment_split([record for block in found for record in block.records], found[0].slo)


def _rate(policy: str, capacity: Capacity) -> Metric:
    assert capacity.rate_per_s is not None
    return Metric(
        name=f"{policy}_capacity_requests_per_s", unit="requests/s", value=capacity.rate_per_s, better="higher"
    )


KIND = AttainmentKind()
