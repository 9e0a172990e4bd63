"""The figures of a paper beside ours: labelled `reported`, with its table and hardware, never compared with them.

Worked example: reported("6", "ttft_mean", 1e3, policy="layered") == "1,240", and conditions("6") == "Table 6:
qwen3-30b-a3b on 2 x nvidia-h100, layered-arxiv at 1.3 req/s". Of another paper, reported("figure 3", "value",
paper=HETERO_INFER, characteristic="stage_width") == "32".
"""

from __future__ import annotations

from functools import cache

from pytest_npubench.core.papers import Cell, PublishedPaper, PublishedTable, published
from pytest_npubench.errors import ConfigError
from pytest_npubench.reports import number_text

LAYERED_PREFILL, HETERO_INFER, LLM_NPU, LENS = "layered_prefill", "heteroinfer", "llm_npu", "lens"
TITLES = {LAYERED_PREFILL: "Layered Prefill", HETERO_INFER: "HeteroInfer", LLM_NPU: "llm.npu", LENS: "LENS"}
HARDWARE = {HETERO_INFER: "Snapdragon 8 Gen 3"}
"""What all tables of a paper were measured on where they do not say otherwise: HeteroInfer, section 5.1."""
MODEL, WORKLOAD = "qwen3-30b-a3b", "layered-arxiv"


def reported(table: str, column: str, factor: float = 1, *, paper: str = LAYERED_PREFILL, **row: Cell) -> str:
    """The printed value times `factor`, which turns its unit into ours; "–" where the paper has none."""
    try:
        value = read_paper(paper).table(table).value(column, **row)
    except ConfigError:
        return number_text.UNKNOWN
    return value if isinstance(value, str) else number_text.plain(value * factor)


def conditions(table: str, *, paper: str = LAYERED_PREFILL, **row: Cell) -> str:
    """Where a table was measured: model, hardware, workload and rate, of the table as a whole or of one of its rows."""
    found = read_paper(paper).table(table)
    model = row.get("model", found.model)
    rate = row.get("rate", found.rate_per_s)
    hardware = found.hardware or HARDWARE.get(paper)
    words = [
        " on ".join(str(word) for word in (model, _devices(found.num_devices, hardware)) if word),
        " at ".join(
            str(word) for word in (found.workload, f"{rate:g} req/s" if isinstance(rate, float) else "") if word
        ),
    ]
    shown = ", ".join(word for word in words if word)
    return f"{_place(found)}: {shown}" if shown else _place(found)


def label(*parts: str, paper: str = LAYERED_PREFILL) -> str:
    """The sentence that stands with reported figures."""
    printed = "printed in the paper, not measured here and compared with nothing"
    return f"Reported ({TITLES[paper]}, {'; '.join(part for part in parts if part)}): {printed}."


def note(table: str, *said: str, paper: str = LAYERED_PREFILL, **row: Cell) -> str:
    """The sentence that stands with figures of one table: where they were measured, and what is said of them."""
    return label(conditions(table, paper=paper, **row), *said, paper=paper)


def model_of(table: str, model: str) -> str:
    """The model where the table has rows of it, else the one that the paper is mainly about."""
    return model if model in read_paper(LAYERED_PREFILL).table(table).column("model") else MODEL


def workload_of(table: str, workload: str) -> str:
    """The paper's name of the workload that ours is made of: "layered-arxiv-div32" is "layered-arxiv"."""
    names = read_paper(LAYERED_PREFILL).table(table).column("workload")
    return next((str(name) for name in names if workload.startswith(str(name))), WORKLOAD)


@cache
def read_paper(name: str) -> PublishedPaper:
    return published(name)


def _place(found: PublishedTable) -> str:
    """Where in the paper: "Table 6", "section 5.13", "Fig. 3, section 3.2"; or the section's own words."""
    kind, _, rest = found.number.partition(" ")
    if not found.section[:1].isdigit():
        return found.section
    if kind == "figure":
        return f"Fig. {rest.split()[0]}, section {found.section}"
    is_section = kind == "section" or found.number.startswith(found.section)
    return f"section {found.section}" if is_section else f"Table {found.number}"


def _devices(number: int | None, hardware: str | None) -> str:
    return f"{number} x {hardware}" if hardware and number else hardware or ""
