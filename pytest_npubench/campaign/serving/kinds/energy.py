"""Energy a token under layered and under chunked prefill (Layered Prefill, Table 8).

The paper divides by prompt and output tokens together: 51.7 mJ layered and 56.6 mJ chunked at 1.3 req/s on two H100.
Both denominators are given by name. Where no energy counter can be read the case is inconclusive and says so.
"""

from __future__ import annotations

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.serving.blocks import Block, blocks
from pytest_npubench.campaign.serving.experiment import Experiment
from pytest_npubench.campaign.serving.figures import paired_ratios, ratio_metric
from pytest_npubench.campaign.serving.plan import ServingPlan
from pytest_npubench.campaign.serving.points import ServedPoint
from pytest_npubench.campaign.serving.policies import layered_and_chunked
from pytest_npubench.case import Case
from pytest_npubench.result import Judgement, Metric
from pytest_npubench.verdict import Verdict, VerdictKind, judge_gates


class EnergyKind(Experiment):
    name = "energy"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        return layered_and_chunked(case, plan)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        layered, chunked = (blocks(measured, point) for point in self.points(case, plan))
        what = f"energy, layered / chunked, {layered[0].rate_per_s:.3g} req/s"
        if any(block.energy_j is None for block in (*layered, *chunked)):
            reason = "energy unavailable: this device offers no counter of it that can be read"
            return Judgement(verdict=Verdict(kind=VerdictKind.INCONCLUSIVE, reason=reason), what=what)
        ratio = ratio_metric("energy_ratio", paired_ratios(layered, chunked, _joules))
        return Judgement(
            verdict=judge_gates(()),
            what=what,
            metrics=(ratio, *_per_token("layered", layered), *_per_token("chunked", chunked)),
            detail={
                "rate_per_s": layered[0].rate_per_s,
                "published": "Layered Prefill, Table 8: 51.7 / 56.6 mJ per prompt and output token at 1.3 req/s",
            },
        )


def _joules(block: Block) -> float:
    assert block.energy_j is not None
    return block.energy_j


def _per_token(policy: str, found: tuple[Block, ...]) -> tuple[Metric, Metric]:
    """mJ a token, by both denominators."""
    of_all, of_output = [], []
    for block in found:
        num_output = sum(record.num_tokens for record in block.records)
        num_prompt = sum(record.prompt_tokens or 0 for record in block.records)
        of_all.append(1e3 * _joules(block) / (num_prompt + num_output))
        of_output.append(1e3 * _joules(block) / num_output)
    return (
        _mean(f"{policy}_mj_per_prompt_and_output_token", of_all),
        _mean(f"{policy}_mj_per_output_token", of_output),
    )


def _mean(name: str, values: list[float]) -> Metric:
    return Metric(name=name, unit="mJ", value=sum(values) / len(values), samples=tuple(values))


KIND = EnergyKind()
