"""All requests at once, and a relaxed TBT limit (Layered Prefill, section 5.9).

Offline, the paper measures 391.59 tokens/s layered (16 groups) and 315.36 chunked (512 tokens). With four times the
work in an iteration (chunks of 2,048, 4 groups) both become alike: 2.47 s of mean TTFT each. Gated: layered prefill
serves at least as many tokens a second as chunked prefill; its lead with the larger iterations is shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.figures import (
    block_metric,
    blocks,
    output_tokens_per_s,
    paired_ratios,
    ratio_metric,
)
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint
from pytest_npubench.suites.scheduling.policies import layered_and_chunked
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement

RELAXED = 4
SPEED = "tokens/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class RelaxedSloDetail(ServingDetail):
    """relaxed_factor: by how much the larger iterations are larger."""

    workload: str
    num_blocks: int
    relaxed_factor: int


class RelaxedSloKind(LoadExperiment):
    name = "relaxed_slo"

    def points(self, case: Case, plan: ServingPlan) -> tuple[ServedPoint, ...]:
        strict = [replace(point, at_once=True) for point in layered_and_chunked(case, plan)]
        return tuple(replace(point, settings=_times(point, factor)) for factor in (1, RELAXED) for point in strict)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        layered, chunked, wide_layered, wide_chunked = (blocks(measured, point) for point in self.points(case, plan))
        lead = paired_ratios(chunked, layered, output_tokens_per_s)
        wide_lead = paired_ratios(wide_chunked, wide_layered, output_tokens_per_s)
        strict = ratio_metric("throughput_chunked_over_layered", lead)
        relaxed = ratio_metric("relaxed_throughput_chunked_over_layered", wide_lead)
        return Judgement(
            verdict=judge_gates((Gate(metric="tokens/s, chunked / layered", value=strict.value, limit=1.0),)),
            what="offline throughput, chunked / layered",
            metrics=(
                strict,
                relaxed,
                block_metric("layered_output_tokens_per_s", SPEED, layered, output_tokens_per_s, better="higher"),
                block_metric("chunked_output_tokens_per_s", SPEED, chunked, output_tokens_per_s, better="higher"),
                block_metric(
                    "relaxed_layered_output_tokens_per_s", SPEED, wide_layered, output_tokens_per_s, better="higher"
                ),
                block_metric(
                    "relaxed_chunked_output_tokens_per_s", SPEED, wide_chunked, output_tokens_per_s, better="higher"
                ),
            ),
            detail=RelaxedSloDetail(
                workload=plan.load(case).workload,
                num_blocks=len(layered),
                relaxed_factor=RELAXED,
            ),
        )


def _times(point: ServedPoint, factor: int) -> tuple[tuple[str, int | None], ...]:
    """Returns the settings with `factor` times the prefill tokens of an iteration; the merge cap stays."""
    return tuple(
        (name, value * factor if name in ("chunk_size_tokens", "tokens_per_iteration") and value else value)
        for name, value in point.settings
    )


KIND = RelaxedSloKind()
