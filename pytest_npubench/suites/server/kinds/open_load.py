"""One workload at one rate: TTFT, TBT, E2E, throughput and SLO attainment of a server, seen from outside.

Attainment is over the requests that arrived, so one that failed counts against it. A case fails where fewer attain than
the hardware file wants, and is invalid where the client itself was late or no request was answered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import pooled
from pytest_npubench.campaign.served_metrics import ServedFigure, SloDetail, missed, reported
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.stats.error import repeat_error
from pytest_npubench.suites.server.blocks import LoadBlock
from pytest_npubench.suites.server.failures import in_words
from pytest_npubench.suites.server.figures import seen_from_outside
from pytest_npubench.suites.server.lateness import dispatch_lag_p99_s, why_late
from pytest_npubench.suites.server.own_figures import OwnFigures
from pytest_npubench.suites.server.plan import ServerPlan
from pytest_npubench.suites.server.points import LoadPoint
from pytest_npubench.verdict import Gate, Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientDetail:
    """How late the client itself was, in seconds."""

    dispatch_lag_p99_s: float
    loop_stall_p99_s: float
    loop_stall_worst_s: float

    @classmethod
    def of(cls, block: LoadBlock) -> ClientDetail:
        _, p99_s, worst_s = block.stalls_s
        return cls(dispatch_lag_p99_s=dispatch_lag_p99_s(block), loop_stall_p99_s=p99_s, loop_stall_worst_s=worst_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLoadDetail:
    """What was asked of the server and how; `failures`, `counted_by` and `remarks` are numbers of requests, by
    name. server: what it said of itself, None where that is nothing."""

    workload: str
    rate_per_s: float
    clock: str
    api: str
    slo: SloDetail
    num_blocks: int
    num_arrived: int
    failures: Mapping[str, int]
    counted_by: Mapping[str, int]
    client: ClientDetail
    figures: Mapping[str, ServedFigure]
    remarks: Mapping[str, int] = field(default_factory=dict)
    server: OwnFigures | None = None


class OpenLoadKind:
    name = "open_load"
    suite = "server"

    def axes(self, plan: ServerPlan) -> Iterable[Axes]:
        return ((("workload", load.workload), ("rate", load.rate_name)) for load in plan.loads)

    def points(self, case: Case, plan: ServerPlan) -> tuple[LoadPoint, ...]:
        return (LoadPoint(load=plan.load(case)),)

    def settled(self, case: Case, plan: ServerPlan, measured: Measured) -> bool:
        """min_rounds are what the case was planned with; more would load a server that others may use."""
        return True

    def judge(self, case: Case, plan: ServerPlan, measured: Measured) -> Judgement:
        (point,) = self.points(case, plan)
        blocks = [block for (block,) in measured.visits(point.name, LoadBlock)]
        own_figures = [figures for visits in measured.visits(point.name, OwnFigures) for figures in visits]
        whole = pooled(blocks)
        metrics, figures = reported(blocks, seen_from_outside)
        return Judgement(
            verdict=_verdict(whole, metrics, plan.server.attainment),
            what=f"mean TTFT at {whole.rate_per_s:g} req/s",
            metrics=metrics,
            measured_s=fmean(whole.ttfts_s),
            repeat_error=repeat_error([fmean(block.ttfts_s) for block in blocks if block.ttfts_s]),
            detail=OpenLoadDetail(
                workload=point.load.workload,
                rate_per_s=whole.rate_per_s,
                clock="wall",
                api=plan.server.asking.api,
                slo=SloDetail() if whole.slo is None else SloDetail(ttft_s=whole.slo.ttft_s, tbt_s=whole.slo.tbt_s),
                num_blocks=len(blocks),
                num_arrived=len(whole.records),
                failures=whole.failures,
                counted_by=whole.num_counted_by,
                remarks=whole.num_remarked,
                server=OwnFigures.pooled(own_figures),
                client=ClientDetail.of(whole),
                figures=figures,
            ),
        )


def _verdict(whole: LoadBlock, metrics: Sequence[Metric], attainment: float) -> Verdict:
    """A client that was late says nothing of a server. Failures are named whatever the verdict."""
    if late := why_late(whole):
        return Verdict(kind=VerdictKind.INVALID, reason=late)
    gates: tuple[Gate, ...] = ()
    if whole.slo is not None:
        gates = (Gate(metric="requests that miss the SLO", value=missed(metrics), limit=1 - attainment, unit="%"),)
    verdict, num_arrived = judge_gates(gates), len(whole.records)
    counted = [in_words(names, num_arrived) for names in (whole.failures, whole.num_remarked)]
    return replace(verdict, reason="; ".join([verdict.reason, *filter(None, counted)]))


KIND = OpenLoadKind()
