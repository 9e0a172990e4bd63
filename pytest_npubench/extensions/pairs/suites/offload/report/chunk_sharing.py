"""Chunk graphs: each way to have graphs for a prompt, by its length."""

from __future__ import annotations

from pytest_npubench.extensions.pairs.suites.offload.kinds.chunk_sharing import ChunkSharingDetail
from pytest_npubench.extensions.pairs.suites.offload.report.arms import ERROR, over
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import plain, table
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import LLM_NPU, note, reported
from pytest_npubench.verdict.case_record import CaseRecord

CHUNKS = (
    "The same prompt with one graph for its very length (whole), padded to the longest, in chunks with a graph each, "
    "and in chunks that share what does not depend on the chunk's place. Times are medians over the rounds; ratios to "
    "whole are medians of the rounds' own, and an interval needs 6 rounds. Weights are constants in the graphs."
)


def chunk_table(record: CaseRecord[ChunkSharingDetail]) -> Table:
    shared, subgraphs, saved, prompt, chunk = (
        reported("3.2", name, paper=LLM_NPU) for name in ("shared", "subgraphs", "memory_saved", "prompt", "chunk")
    )
    said = f"prompt {prompt}, chunk {chunk}: {shared} of {subgraphs} subgraphs shared, {saved} % of memory saved"
    return table(
        "Chunk-sharing graphs",
        (
            ("prompt", lambda row: row.setting),
            ("arm", lambda row: row.arm),
            ("time ms", lambda row: number_text.milliseconds(row.total_s)),
            ("over whole", over),
            ("graphs", lambda row: number_text.count(row.num_graphs)),
            ("weights MB", lambda row: plain(row.weight_bytes * 1e-6)),
            ("executables MB", lambda row: plain(row.executable_bytes * 1e-6)),
            ("compiling s", lambda row: number_text.seconds(row.compile_s)),
            ("tokens computed", lambda row: number_text.count(row.computed_tokens)),
            ("relative error", lambda row: plain(row.relative_error)),
        ),
        record.detail.arms,
        note=f"{CHUNKS} {_saved(record.detail)}{ERROR} {note('3.2', said, paper=LLM_NPU)}",
    )


def _saved(detail: ChunkSharingDetail) -> str:
    """Weights that sharing saves against a graph for each chunk, and the subgraphs behind it."""
    shares = [f"{number_text.percent(saved)} % at {length} tokens" for length, saved in detail.saved_fraction.items()]
    if not shares:
        return ""
    shared = next(iter(detail.shared_subgraphs.values()), None)
    counts = f" ({shared[0]} of {shared[1]} subgraphs of a chunk are shared)" if shared else ""
    return f"Weights saved by sharing against per_chunk: {', '.join(shares)}{counts}. "
