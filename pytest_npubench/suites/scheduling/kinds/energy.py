"""Energy a token under layered and under chunked prefill (Layered Prefill, Table 8).

The paper divides by prompt and output tokens together: 51.7 mJ layered and 56.6 mJ chunked at 1.3 req/s on two H100.
Both denominators are given by name. Energy is all that the device's counter counted while a block was served, its idle
power included, on a host that of its packages whoever used them. The idle power is measured beside the blocks; energy
above it is a further figure under its own name:

    above idle = (J - idle power x seconds of the block) / (prompt + output tokens)

Worked example: 600 J for a block of 4 s and 10,000 tokens are 60 mJ a token, and with 50 W idle 40 mJ above idle.
Where no energy counter can be read the case is unavailable and says which path, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import ServedBlock
from pytest_npubench.core.case import Case
from pytest_npubench.errors import MeasurementError
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import block_metric, blocks, paired_ratios, ratio_metric
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import IdlePoint, IdleVisit, ServedPoint
from pytest_npubench.suites.scheduling.policies import layered_and_chunked
from pytest_npubench.verdict import Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

NO_COUNTER = "unavailable: this device offers no energy counter that can be read"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyDetail(ServingDetail):
    """Mean power in watts, by policy and at rest; empty and None where nothing tells it."""

    rate_per_s: float
    num_blocks: int | None = None
    power_w: Mapping[str, float] = field(default_factory=dict)
    idle_power_w: float | None = None


class EnergyKind(LoadExperiment):
    name = "energy"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint | IdlePoint, ...]:
        return (*layered_and_chunked(case, plan), IdlePoint())

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        layered, chunked = (blocks(measured, point) for point in layered_and_chunked(case, plan))
        what = f"energy, layered / chunked, {layered[0].rate_per_s:.3g} req/s"
        detail = EnergyDetail(rate_per_s=layered[0].rate_per_s, num_blocks=len(layered))
        if any(not block.energy_j for block in (*layered, *chunked)):
            verdict = Verdict(kind=VerdictKind.UNAVAILABLE, reason=f"energy {_why_unknown(measured)}")
            return Judgement(verdict=verdict, what=what, detail=detail)
        idle_w = _idle_w(measured)
        return Judgement(
            verdict=judge_gates(()),
            what=what,
            metrics=(
                ratio_metric("energy_ratio", paired_ratios(layered, chunked, _joules)),
                *_per_token("layered", layered),
                *_per_token("chunked", chunked),
                *(() if idle_w is None else (_above_idle("layered", layered, idle_w),)),
                *(() if idle_w is None else (_above_idle("chunked", chunked, idle_w),)),
            ),
            detail=replace(
                detail,
                power_w={name: _power_w(found) for name, found in (("layered", layered), ("chunked", chunked))},
                idle_power_w=idle_w,
            ),
        )


def _why_unknown(measured: Measured) -> str:
    """What the telemetry said of the rounds that were watched."""
    states = (watched.state for watched in measured.watched if watched.state is not None)
    return next((state.energy_unknown for state in states if state.energy_unknown), NO_COUNTER)


def _idle_w(measured: Measured) -> float | None:
    """Mean over the rounds; None where it was not measured."""
    try:
        visits = [visit for (visit,) in measured.visits(IdlePoint().name, IdleVisit)]
    except MeasurementError:
        return None
    powers_w = [visit.power_w for visit in visits if visit.power_w is not None]
    return sum(powers_w) / len(powers_w) if powers_w else None


def _joules(block: ServedBlock) -> float:
    assert block.energy_j is not None
    return block.energy_j


def _power_w(served: tuple[ServedBlock, ...]) -> float:
    return sum(map(_joules, served)) / sum(block.duration_s for block in served)


def _per_token(policy: str, served: tuple[ServedBlock, ...]) -> tuple[Metric, Metric]:
    """mJ a token, by both denominators."""
    return (
        block_metric(
            f"{policy}_mj_per_prompt_and_output_token", "mJ", served, lambda block: _mj(block) / block.num_tokens
        ),
        block_metric(f"{policy}_mj_per_output_token", "mJ", served, lambda block: _mj(block) / block.num_output_tokens),
    )


def _above_idle(policy: str, served: tuple[ServedBlock, ...], idle_w: float) -> Metric:
    """Held against nothing: a difference of two measurements, below 0 where the device drew less than at rest."""
    return block_metric(
        f"{policy}_mj_above_idle_per_prompt_and_output_token",
        "mJ",
        served,
        lambda block: (_mj(block) - 1e3 * idle_w * block.duration_s) / block.num_tokens,
        gate="none",
    )


def _mj(block: ServedBlock) -> float:
    return 1e3 * _joules(block)


KIND = EnergyKind()
