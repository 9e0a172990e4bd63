"""One workload at one rate: TTFT, TBT, E2E, throughput and SLO attainment of a server, seen from outside.

Attainment is over the requests that arrived, so one that failed counts against it. A case fails where fewer attain than
the hardware file wants, and is invalid where the client itself was late or no request was answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.serving.metrics import slo_attainment
from pytest_npubench.stats.error import repeat_error
from pytest_npubench.suites.server.blocks import LoadBlock, blocks, pooled
from pytest_npubench.suites.server.failures import by_name, in_words
from pytest_npubench.suites.server.figures import metrics_of
from pytest_npubench.suites.server.lateness import dispatch_lag_p99_s, why_late
from pytest_npubench.suites.server.plan import ServerPlan
from pytest_npubench.suites.server.points import LoadPoint
from pytest_npubench.verdict import Gate, Verdict, VerdictKind, judge_gates
from pytest_npubench.verdict.result import Judgement


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
        found = blocks(measured, point)
        whole = pooled(found)
        metrics, about = metrics_of(found)
        ttft_s = [record.ttft_s for record in whole.records if record.num_tokens]
        failures = by_name(whole.failures)
        return Judgement(
            verdict=_verdict(whole, in_words(failures, len(whole.records)), plan.server.attainment),
            what=f"mean TTFT at {whole.rate_per_s:g} req/s",
            metrics=metrics,
            measured_s=sum(ttft_s) / len(ttft_s),
            repeat_error=repeat_error(_mean_ttfts_s(found)),
            detail={
                "workload": point.load.workload,
                "rate_per_s": whole.rate_per_s,
                "clock": "wall",
                "api": plan.server.asking.api,
                "slo": {} if whole.slo is None else {"ttft_s": whole.slo.ttft_s, "tbt_s": whole.slo.tbt_s},
                "num_blocks": len(found),
                "num_arrived": len(whole.records),
                "failures": failures,
                "counted_by": dict(Counter(filter(None, whole.counted_by))),
                "client": {
                    "dispatch_lag_p99_s": dispatch_lag_p99_s(whole),
                    "loop_stall_p99_s": whole.stalls_s[1],
                    "loop_stall_worst_s": whole.stalls_s[2],
                },
                "figures": about,
            },
        )


def _verdict(whole: LoadBlock, failures: str, attainment: float) -> Verdict:
    """A client that was late says nothing of a server. Failures are named whatever the verdict."""
    if late := why_late(whole):
        return Verdict(kind=VerdictKind.INVALID, reason=late)
    gates: tuple[Gate, ...] = ()
    if whole.slo is not None:
        missed = 1 - slo_attainment(whole.records, whole.slo)
        gates = (Gate(metric="requests that miss the SLO", value=missed, limit=1 - attainment, unit="%"),)
    verdict = judge_gates(gates)
    return replace(verdict, reason=f"{verdict.reason}; {failures}") if failures else verdict


def _mean_ttfts_s(found: Sequence[LoadBlock]) -> list[float]:
    """Of each block that has a token; one whose requests all failed is not among them."""
    of_blocks = [[record.ttft_s for record in block.records if record.num_tokens] for block in found]
    return [sum(ttft_s) / len(ttft_s) for ttft_s in of_blocks if ttft_s]


KIND = OpenLoadKind()
