"""The control: a dense decoder, where layered prefill has no expert loads to save (Layered Prefill, section 5.13).

The paper measures it slower there: mean TTFT 1.45 s against 0.955 s, mean TBT 20.3 ms against 16.2 ms. A harness that
lets it win on a dense model measures something else than expert loads, so the case fails where layered prefill is
proven to win: where the 95 % interval of the ratio of mean TTFT, layered / chunked, over pairs of blocks is wholly
below 1. The ratio stands in the case's line with its interval, and so does a lead of layered prefill without a proof.
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import (
    blocks,
    mean_e2e_s,
    mean_tbt_s,
    mean_ttft_s,
    paired_ratios,
    ratio_bounds,
    ratio_interval,
    ratio_metric,
)
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import layered_and_chunked
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseControlDetail(ServingDetail):
    """The 95 % interval of the TTFT ratio is None where one block alone was served."""

    rate_per_s: float
    num_blocks: int
    tokens_per_iteration: int | None = None
    ttft_ratio_interval: tuple[float, float] | None = None


class DenseControlKind(LoadExperiment):
    name = "dense_control"
    dense = True

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        return layered_and_chunked(case, plan)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        layered, chunked = (blocks(measured, point) for point in self.points(case, plan))
        ratios_of_blocks = paired_ratios(layered, chunked, mean_ttft_s)
        ttft, bounds = ratio_metric("ttft_ratio", ratios_of_blocks), ratio_bounds(ratios_of_blocks)
        others = {"tbt_ratio": mean_tbt_s, "e2e_ratio": mean_e2e_s}
        ratios = (ratio_metric(name, paired_ratios(layered, chunked, of)) for name, of in others.items())
        # the largest ratio that the blocks allow, turned over: above 1, layered prefill wins whatever it is
        wins = Gate(metric="mean TTFT, chunked / layered, at the least", value=1 / bounds[1], limit=1.0)
        return Judgement(
            verdict=judge_gates((wins,)),
            what=f"dense: mean TTFT, layered / chunked, {_in_words(ttft.value, bounds)}, "
            f"{layered[0].rate_per_s:.3g} req/s",
            metrics=(ttft, *ratios),
            detail=DenseControlDetail(
                rate_per_s=layered[0].rate_per_s,
                num_blocks=len(layered),
                tokens_per_iteration=plan.tokens_per_iteration(plan.load(case)),
                ttft_ratio_interval=ratio_interval(ratios_of_blocks),
            ),
        )


def _in_words(ratio: float, bounds: tuple[float, float]) -> str:
    """0.8 of (0.61, 1.05) is "0.800 (0.610 to 1.050; layered ahead by 20 %, not proven)"."""
    lead = f"; layered ahead by {100 * (1 - ratio):.0f} %, not proven" if ratio < 1 <= bounds[1] else ""
    return f"{ratio:.3f} ({bounds[0]:.3f} to {bounds[1]:.3f}{lead})"


KIND = DenseControlKind()
