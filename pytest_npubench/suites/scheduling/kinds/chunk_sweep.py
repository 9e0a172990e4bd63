"""One prompt alone, prefilled in chunks of 1 to 1/16 of its length: expert bytes and time (Layered Prefill, Fig. 2).

The bytes are an exact counter and fall with the chunk's size; the paper's are 764, 406, 213, 110 and 57 GB for chunks
of 512 to 8,192 tokens of a prompt of 8,192.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Axes, Case
from pytest_npubench.stats.error import repeat_error
from pytest_npubench.suites.scheduling.experiment import LoadExperiment, ServingDetail
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import PromptPoint, PromptVisit
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

CHUNKS = (1, 2, 4, 8, 16)  # times tokens_per_iteration; the longest is the whole prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSweepDetail(ServingDetail):
    """The bytes of experts that one prompt loads in chunks of a size."""

    chunk_size_tokens: int
    prompt_tokens: int
    expert_load_bytes: int


class ChunkSweepKind(LoadExperiment):
    name = "chunk_sweep"

    def axes(self, plan: ServingPlan) -> Iterable[Axes]:
        if plan.shape.is_dense:
            return ()
        return ((("chunk", times * plan.serving.tokens_per_iteration),) for times in CHUNKS)

    def points(self, case: Case, plan: ServingPlan) -> tuple[PromptPoint, ...]:
        prompt_tokens = CHUNKS[-1] * plan.serving.tokens_per_iteration
        return (PromptPoint(prompt_tokens=prompt_tokens, chunk_size_tokens=int(case.axis("chunk"))),)

    def judge(self, case: Case, plan: ServingPlan, measured: Measured) -> Judgement:
        (point,) = self.points(case, plan)
        visits = [visit for (visit,) in measured.visits(point.name, PromptVisit)]
        loaded = [visit.expert_load_bytes for visit in visits]
        prefill_s = [visit.prefill_s for visit in visits]
        changed = Gate(metric="rounds with another count", value=sum(value != loaded[0] for value in loaded), limit=0)
        mean_s = sum(prefill_s) / len(prefill_s)
        return Judgement(
            verdict=judge_gates((changed,)),
            what=f"prompt of {point.prompt_tokens} in chunks of {point.chunk_size_tokens}",
            metrics=(
                Metric(name="expert_load_bytes", unit="B", value=loaded[0], gate="exact"),
                Metric(name="prefill_s", unit="s", value=mean_s, samples=tuple(prefill_s)),
            ),
            measured_s=mean_s,
            repeat_error=repeat_error(prefill_s),
            detail=ChunkSweepDetail(
                chunk_size_tokens=point.chunk_size_tokens,
                prompt_tokens=point.prompt_tokens,
                expert_load_bytes=loaded[0],
            ),
        )


KIND = ChunkSweepKind()
