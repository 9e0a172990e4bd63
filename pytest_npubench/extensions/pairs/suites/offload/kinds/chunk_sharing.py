"""Chunk-sharing graphs alone: number of graphs, compile time, bytes and run time of four ways (llm.npu, section 3.2).

The case fails where an arm's output is wrong; the number of graphs is the plan's own and is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.case import Case
from pytest_npubench.extensions.pairs.offload.chunk_graphs import ChunkSettings, ChunkVisit
from pytest_npubench.extensions.pairs.offload.summaries import ChunkRow, summarize_chunks
from pytest_npubench.extensions.pairs.suites.offload.plan import OffloadExperiment, OffloadPlan, arm_time, visits_of
from pytest_npubench.verdict import Gate, judge_gates
from pytest_npubench.verdict.result import Judgement, Metric

MAX_RELATIVE_ERROR = 1e-4  # every arm computes in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSharingDetail:
    """By prompt length, in tokens: saved_fraction, of the weight bytes, sharing against per_chunk; shared_subgraphs, of
    one chunk's subgraphs those shared, and all."""

    arms: tuple[ChunkRow, ...]
    compared_with: str = "whole"
    saved_fraction: Mapping[str, float]
    shared_subgraphs: Mapping[str, tuple[int, int]]


class ChunkSharingKind(OffloadExperiment):
    name = "chunk_sharing"

    def judge(self, case: Case, plan: OffloadPlan, measured: Measured) -> Judgement:
        settings = plan.experiment
        assert isinstance(settings, ChunkSettings)
        visits = visits_of(measured, self.points(case, plan), ChunkVisit)
        summary = summarize_chunks(settings, visits)
        error = max(row.relative_error for row in summary.rows)
        longest = max(settings.prompt_tokens)
        saved = summary.saved_fraction[longest]
        return Judgement(
            verdict=judge_gates((Gate(metric="relative error", value=error, limit=MAX_RELATIVE_ERROR),)),
            what=f"sharing at {longest} tokens: {saved:.0%} of the weights saved",
            metrics=(
                arm_time("sharing_s", visits, f"chunk_graphs/sharing/{longest} tokens"),
                Metric(name="saved_fraction", unit="", value=saved, better="higher", gate="none"),
            ),
            detail=ChunkSharingDetail(
                arms=summary.rows,
                saved_fraction={str(length): value for length, value in summary.saved_fraction.items()},
                shared_subgraphs={str(length): value for length, value in summary.shared_subgraphs.items()},
            ),
        )


KIND = ChunkSharingKind()
