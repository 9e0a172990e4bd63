"""Layered against chunked prefill in a sentence, for the end of a run and the head of a campaign's section.

Worked example: an expert_load_ratio of 0.62 and a ttft_ratio of 0.55 make "layered / chunked: expert bytes -38 %, mean
TTFT -45 %, at 0.85 req/s (layered-arxiv-div32, small-moe, 3 blocks)", and attainments of 0.96 and 0.83
"SLO attainment 96 % against 83 %" between them.
"""

from __future__ import annotations

from collections.abc import Iterable

from pytest_npubench.engines import title_of
from pytest_npubench.reports import number_text
from pytest_npubench.reports.record_fields import Record, kind_of, number, suite_of, table, text
from pytest_npubench.reports.served_loads import rate_text, workload_of

RATIOS = {
    "expert_load_ratio": "expert bytes",
    "ttft_ratio": "mean TTFT",
    "tbt_ratio": "mean TBT",
    "e2e_ratio": "mean E2E",
}
BEGINNINGS = {"expert_loads": "layered / chunked", "dense_control": "dense control, layered / chunked"}


def comparison_lines(records: Iterable[Record]) -> list[str]:
    """One line for each expert_loads, dense_control and identical_tokens case that was measured, in that order."""
    records = [record for record in records if suite_of(record) == "scheduling"]
    lines = (
        _line(beginning, record)
        for kind, beginning in BEGINNINGS.items()
        for record in records
        if kind_of(record) == kind
    )
    tokens = (_tokens_line(record) for record in records if kind_of(record) == "identical_tokens")
    return [line for line in (*lines, *tokens) if line]


def _line(beginning: str, record: Record) -> str:
    metrics = table(record, "metrics")
    values = ((called, number(table(metrics, name), "value")) for name, called in RATIOS.items())
    changes = [f"{called} {_change(value)}" for called, value in values if value is not None]
    if not changes:
        return ""
    changes += _attainments(record)
    rate = rate_text(record)
    return f"{beginning}: {', '.join(changes)}{f', at {rate}' if rate else ''} ({', '.join(_about(record))})"


def _attainments(record: Record) -> list[str]:
    found = table(table(record, "detail"), "slo_attainment")
    layered, chunked = number(found, "layered"), number(found, "chunked")
    if layered is None or chunked is None:
        return []
    return [f"SLO attainment {100 * layered:.0f} % against {100 * chunked:.0f} %"]


def _tokens_line(record: Record) -> str:
    """What the case says of itself, where it was measured."""
    return f"{what} ({', '.join(_about(record))})" if (what := text(record, "what")) else ""


def _about(record: Record) -> list[str]:
    blocks, device = number(table(record, "detail"), "num_blocks"), text(record, "device")
    return [
        workload_of(record),
        text(record, "model"),
        *([f"{number_text.count(blocks)} blocks"] if blocks is not None else ()),
        *([title_of(engine)] if (engine := text(table(record, "detail"), "engine")) else ()),
        *([device] if device and not device.endswith(":0") else ()),
    ]


def _change(ratio: float) -> str:
    return f"{round(100 * (ratio - 1)):+d} %"


def vllm_policy_lines(records: Iterable[Record]) -> list[str]:
    """vLLM's settings of each policy that it served, each once."""
    found = (text(table(record, "detail"), "vllm") for record in records if kind_of(record) == "policy")
    return [f"Settings of vLLM, {settings}" for settings in dict.fromkeys(found) if settings]
