"""The control: a dense decoder, where layered prefill has no expert loads to save (Layered Prefill, section 5.13).

The paper measures it slower there: mean TTFT 1.45 s against 0.955 s, mean TBT 20.3 ms against 16.2 ms. A harness that
lets it win on a dense model measures something else than expert loads, so the case fails where layered prefill's mean
TTFT is below WIN of chunked prefill's.
"""

from __future__ import annotations

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.serving.blocks import blocks
from pytest_npubench.campaign.serving.experiment import Experiment
from pytest_npubench.campaign.serving.figures import mean_e2e_s, mean_tbt_s, mean_ttft_s, paired_ratios, ratio_metric
from pytest_npubench.campaign.serving.plan import ServingPlan
from pytest_npubench.campaign.serving.points import ServedPoint
from pytest_npubench.campaign.serving.policies import layered_and_chunked
from pytest_npubench.case import Case
from pytest_npubench.result import Judgement
from pytest_npubench.verdict import Gate, judge_gates


class DenseControlKind(Experiment):
    name = "dense_control"
    dense = True

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        return layered_and_chunked(case, plan)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        layered, chunked = (blocks(measured, point) for point in self.points(case, plan))
        ttft = ratio_metric("ttft_ratio", paired_ratios(layered, chunked, mean_ttft_s))
        others = {"tbt_ratio": mean_tbt_s, "e2e_ratio": mean_e2e_s}
        ratios = (ratio_metric(name, paired_ratios(layered, chunked, of)) for name, of in others.items())
        wins = Gate(metric="mean TTFT, chunked / layered", value=1 / ttft.value, limit=1.0)
        return Judgement(
            verdict=judge_gates((wins,)),
            what=f"dense: mean TTFT, layered / chunked, {layered[0].rate_per_s:.3g} req/s",
            metrics=(ttft, *ratios),
            detail={
                "rate_per_s": layered[0].rate_per_s,
                "num_blocks": len(layered),
                "published": "Layered Prefill, section 5.13: mean TTFT 1.45 s layered, 0.955 s chunked",
            },
        )


KIND = DenseControlKind()
