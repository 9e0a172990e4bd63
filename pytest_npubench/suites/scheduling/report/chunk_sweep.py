"""Expert bytes and prefill time of one prompt by the size of the chunks that it is cut into."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_npubench.reports import definitions, number_text
from pytest_npubench.reports.build import chart, line, series_table
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import BLUE, ORANGE, Ends, axis, log_axis
from pytest_npubench.suites.scheduling.kinds.chunk_sweep import ChunkSweepDetail
from pytest_npubench.verdict.case_record import CaseRecord

CHUNK_BYTES = (
    "Expert bytes: each chunk loads every expert that one of its tokens is routed to, so smaller chunks load the same "
    "experts again; bytes are the experts loaded, summed over chunks and layers, times the bytes of one expert."
)
CHUNK_REPORTED = (
    "reported (Layered Prefill, section 3.2 and Fig. 2: Qwen3-30B-A3B, a prompt of 8,192 tokens): the load falls in "
    "inverse proportion to the chunk size, below 100 GB with the largest, and prefill from over 500 ms in chunks of "
    "512 to near 200 ms."
)
CHUNK_PREFILL = "Prefill time of one prompt alone, from its arrival to its first token."


def chunk_charts(cases: Sequence[CaseRecord[ChunkSweepDetail]]) -> list[Chart]:
    if not cases:
        return []
    cases = sorted(cases, key=lambda case: case.detail.chunk_size_tokens)
    sizes = [case.detail.chunk_size_tokens for case in cases]
    lengths = {case.detail.prompt_tokens for case in cases}
    prompt = (f"The prompt has {lengths.pop():,} tokens.",) if len(lengths) == 1 else ()
    timed = [case.judgement.measured_s or 0.0 for case in cases]
    errors = [(case.judgement.repeat_error or 0.0) * 1e3 * time_s for case, time_s in zip(cases, timed, strict=True)]
    return [
        _chart(
            "Expert bytes by chunk size",
            ("expert bytes", "GB", ORANGE),
            (CHUNK_BYTES, *prompt, CHUNK_REPORTED),
            sizes,
            [case.detail.expert_load_bytes / 1e9 for case in cases],
        ),
        _chart(
            "Prefill time by chunk size",
            ("prefill", "ms", BLUE),
            (CHUNK_PREFILL, *prompt, definitions.STANDARD_ERROR),
            sizes,
            [1e3 * time_s for time_s in timed],
            errors,
        ),
    ]


def _chart(
    title: str,
    quantity: tuple[str, str, str],
    notes: tuple[str, ...],
    sizes: Sequence[int],
    values: Sequence[float],
    errors: Sequence[float] = (),
) -> Chart:
    """quantity is its name, unit and colour; errors, one standard error, are empty for what is counted."""
    name, unit, color = quantity
    texts = list(map(number_text.plain, values))
    columns = {f"{name} {unit}": texts}
    ends: Sequence[Ends] = ()
    if errors:
        ends = [(value - error, value + error) for value, error in zip(values, errors, strict=True)]
        columns[f"± standard error {unit}"] = list(map(number_text.plain, errors))
    return chart(
        title,
        f"{title}: {texts[0]} {unit} in chunks of {sizes[0]} tokens, {texts[-1]} {unit} in chunks of {sizes[-1]}.",
        notes,
        [line(name, sizes, values, "{x}: {y:.4g}", color=color, width=2, ends=ends)],
        (log_axis("chunk, tokens", sizes), axis(f"{name}, {unit}", from_zero=True)),
        series_table(title, "chunk, tokens", [f"{size}" for size in sizes], columns),
        legend=False,
    )
