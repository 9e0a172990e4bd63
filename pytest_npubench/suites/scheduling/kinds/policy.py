"""One policy under one load: latency, attainment, smoothness, fairness, expert loads (Layered Prefill, Tables 6, 9).

A case fails where fewer than 90 % of the arrived requests attain their SLO (section 5.2 of the paper draws its line
there) under a policy that is meant to keep it; static and continuous batching are shown beside them without that gate.
Requests that failed have arrived, so they count as missed, and are told with their reason; mean TTFT is that of the
requests with a first token.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_metrics import ServedFigure, SloDetail, missed
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.serving.schedulers import keeps_slo
from pytest_npubench.stats.error import repeat_error
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import (
    blocks,
    failures_in,
    host_words,
    mean_of_first_tokens,
    mean_ttft_s,
    metrics_of,
)
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import served
from pytest_npubench.suites.scheduling.service import service_of
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement

MAX_MISSED = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDetail(ServingDetail):
    """`failed` says how many requests failed and why, empty where none did; `engine_settings` are those,
    in words, of an engine with schedulers of its own; figures are by name."""

    policy: str
    settings: Mapping[str, Any]
    workload: str
    rate_per_s: float
    clock: str
    slo: SloDetail
    num_blocks: int
    failed: str = ""
    engine_settings: str | None = None
    figures: Mapping[str, ServedFigure]


class PolicyKind(LoadExperiment):
    name = "policy"

    def axes(self, plan: ServingPlan) -> Iterable[Axes]:
        """Takes models with experts, as in the paper: a dense one is there for the control, at work of its own."""
        loads = () if plan.shape.is_dense else plan.loads
        return (
            (("policy", policy), ("workload", load.workload), ("rate", load.rate_name))
            for load in loads
            for policy in plan.size.policies
        )

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        return (served(str(case.axis("policy")), plan, plan.load(case)),)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        (point,) = self.points(case, plan)
        served_blocks = blocks(measured, point)
        metrics, figures = metrics_of(served_blocks, plan.shape)
        kept = Gate(metric="requests that miss the SLO", value=missed(metrics), limit=MAX_MISSED, unit="%")
        verdict, failed = judge_gates((kept,) if keeps_slo(point.policy) else ()), failures_in(served_blocks)
        return Judgement(
            verdict=replace(verdict, reason="; ".join(filter(None, (verdict.reason, host_words(figures), failed)))),
            what=f"mean TTFT, {point.policy}, {served_blocks[0].rate_per_s:.3g} req/s",
            metrics=metrics,
            measured_s=mean_of_first_tokens(served_blocks),
            repeat_error=repeat_error([mean_ttft_s(block) for block in served_blocks if block.ttfts_s]),
            detail=PolicyDetail(
                policy=point.policy,
                settings=dict(point.settings),
                workload=point.load.workload,
                rate_per_s=served_blocks[0].rate_per_s,
                clock="wall",
                slo=SloDetail(ttft_s=served_blocks[0].limits.ttft_s, tbt_s=served_blocks[0].limits.tbt_s),
                num_blocks=len(served_blocks),
                failed=failed,
                engine_settings=service_of(plan).own_settings(plan, point),
                figures=figures,
            ),
        )


KIND = PolicyKind()
