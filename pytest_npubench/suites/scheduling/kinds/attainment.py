"""SLO attainment against the rate, by its two limits, and the capacity of each policy (Layered Prefill, Figs. 3, 4).

Blocks at several rates under layered and chunked prefill; a curve through all gives the rate at 90 % attainment.
The paper's capacities stand in a ratio of 1.14 to 1.45. The case fails where layered prefill's capacity is proven to be
the smaller one, or where a policy's lies below all rates tried: in every round fewer than 90 % attain at the lowest,
0.8 of the load's own rate. It is inconclusive where a policy's attainment does not cross 90 % in another way.

Capacities are held against accepted ones (campaign/served_capacity.py). Rates and limits are frozen with these, so a
slower device has a smaller capacity, and every night draws the same requests.

A block is short, so its queue is never as long as that of a service that goes on: these capacities are for comparing
policies, and nights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.campaign.served_capacity import attained, capacity_metric, capacity_of
from pytest_npubench.core.case import Case
from pytest_npubench.serving.capacity import CapacityRatio, capacity_ratio
from pytest_npubench.serving.metrics import attainment_split
from pytest_npubench.suites.scheduling.calibration import fewest_requests
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import blocks
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import served
from pytest_npubench.suites.scheduling.spec import LoadSpec
from pytest_npubench.verdict import Gate, Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

POLICIES = ("layered", "chunked")
TARGET = 0.9
FACTORS = (0.8, 1.2, 1.6, 2.0, 2.6, 3.2)  # of the load's own rate


@dataclass(frozen=True, slots=True, kw_only=True)
class AttainmentDetail(ServingDetail):
    """Of each policy the shares that attained both limits, TTFT and TBT, by rate; its capacity with the 95 % interval,
    an end None where it is not known, and why. Rates are requests a second."""

    factors: tuple[float, ...]
    rate_per_s: tuple[float, ...]
    attainment: Mapping[str, tuple[tuple[float, float, float], ...]]
    capacity: Mapping[str, tuple[float | None, tuple[float | None, float | None] | None]]
    capacity_ratio: float | None
    capacity_ratio_interval: tuple[float, float] | None
    why: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises ValueError where a policy has no capacity, or not its shares at every rate."""
        for policy in POLICIES:
            num_known = len(self.attainment.get(policy, ()))
            if policy not in self.capacity or not 0 < num_known == len(self.rate_per_s):
                raise ValueError(f"{policy}: want a capacity, and its shares at each of the rates, one or more")


class AttainmentKind(LoadExperiment):
    name = "attainment"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        load = plan.load(case)
        return tuple(served(policy, plan, scaled(load, factor)) for policy in POLICIES for factor in FACTORS)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        served = [blocks(measured, point) for point in self.points(case, plan)]
        by_policy = dict(zip(POLICIES, (served[: len(FACTORS)], served[len(FACTORS) :]), strict=True))
        rounds = {policy: tuple(zip(*served_at, strict=True)) for policy, served_at in by_policy.items()}
        capacities = {policy: capacity_of(rounds[policy], TARGET) for policy in POLICIES}
        ratio = capacity_ratio(capacities["layered"], capacities["chunked"])
        rates = [capacity_metric(f"{policy}_capacity", capacities[policy], rounds[policy]) for policy in POLICIES]
        return Judgement(
            verdict=_verdict(by_policy, ratio, _too_short(case, plan)),
            what="capacity at 90 % attainment, layered / chunked",
            metrics=(
                *((_ratio(ratio.value, *rates),) if ratio.value is not None else ()),
                *rates,
            ),
            detail=AttainmentDetail(
                factors=FACTORS,
                rate_per_s=tuple(served_at[0].rate_per_s for served_at in by_policy["layered"]),
                attainment={policy: tuple(map(_split, served_at)) for policy, served_at in by_policy.items()},
                capacity={policy: (served.rate_per_s, served.interval) for policy, served in capacities.items()},
                capacity_ratio=ratio.value,
                capacity_ratio_interval=ratio.interval,
                why={policy: capacity.why for policy, capacity in capacities.items()},
            ),
        )


def scaled(load: LoadSpec, factor: float) -> LoadSpec:
    if load.rate_per_s is not None:
        return replace(load, rate_per_s=load.rate_per_s * factor)
    assert load.utilisation is not None
    return replace(load, utilisation=load.utilisation * factor)


def _verdict(
    by_policy: Mapping[str, Sequence[tuple[ServedBlock, ...]]], ratio: CapacityRatio, too_short: str
) -> Verdict:
    below = [policy for policy, served_at in by_policy.items() if _is_below(served_at)]
    if below:
        lowest = by_policy[below[0]][0][0].rate_per_s
        reason = f"capacity of {' and '.join(below)} below the lowest rate tried, {lowest:.3g} requests/s"
        return Verdict(kind=VerdictKind.FAILED, reason=f"{reason}: fewer than {TARGET:.0%} attain there in every round")
    if ratio.value is None:
        return Verdict(kind=VerdictKind.INCONCLUSIVE, reason=ratio.why + too_short)
    highest = ratio.interval[1] if ratio.interval else ratio.value
    return judge_gates((Gate(metric="capacity, chunked / layered at the least", value=1 / highest, limit=1.0),))


def _too_short(case: Case, plan: ServingPlan) -> str:
    """What to say where no rate fills the queue of a block far enough for the TTFT limit that follows from the rule."""
    load, num_requests = plan.load(case), plan.size.num_requests
    highest = (load.utilisation or 0.0) * FACTORS[-1]
    if highest <= 1 or plan.spec.slo_for(plan.model, load.workload):
        return ""
    fewest = fewest_requests(highest, TARGET)
    missing = f"; a block of {num_requests} requests is too short to miss the TTFT limit: num_requests wants {fewest}"
    return missing if num_requests < fewest else ""


def _is_below(served_at: Sequence[tuple[ServedBlock, ...]]) -> bool:
    return all(attained(block) < TARGET for block in served_at[0])


def _split(served: tuple[ServedBlock, ...]) -> tuple[float, float, float]:
    """Attainment of both limits, of TTFT and of TBT, over the requests of all rounds at one rate."""
    return attainment_split([record for block in served for record in block.records], served[0].limits)


def _ratio(value: float, layered: Metric, chunked: Metric) -> Metric:
    """Held against nothing: its two capacities are."""
    samples = tuple(high / low for high, low in zip(layered.samples, chunked.samples, strict=True))
    return Metric(name="capacity_ratio", unit="ratio", value=value, better="higher", samples=samples, gate="none")


KIND = AttainmentKind()
