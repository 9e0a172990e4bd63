"""The figures that llm.npu and HeteroInfer print: as typed, as the closed form has them, and never compared."""

from __future__ import annotations

import pytest

from pytest_npubench.core.papers import published

from .oracles import PAPER_LAYOUT

PAPER = published("llm_npu")


def test_the_count_of_shared_subgraphs_follows_from_the_closed_form() -> None:
    layout = PAPER_LAYOUT
    row = {"prompt": layout.prompt_tokens, "chunk": layout.chunk_tokens}
    table = PAPER.table("3.2")
    assert table.value("subgraphs", **row) == layout.subgraphs_per_chunk
    assert table.value("shared", **row) == layout.shared_per_chunk
    assert table.value("memory_saved", **row) == 100 * layout.saved_fraction


@pytest.mark.parametrize(
    ("number", "column", "row", "value", "unit"),
    [
        ("3.3", "share", {"quantity": "latency of synchronisation"}, 29.7, "%"),
        ("3.3", "share", {"quantity": "energy of synchronisation"}, 20.1, "%"),
        ("4.1", "speed_up", {"bound": "highest"}, 5.6, "x"),
        ("heteroinfer", "prefill", {"system": "llm.npu"}, 564, "tokens/s"),
        ("abstract", "value", {"quantity": "prefill speed-up, mean"}, 22.4, ""),
    ],
)
def test_values_are_the_printed_ones(
    number: str, column: str, row: dict[str, float | str], value: float, unit: str
) -> None:
    assert PAPER.table(number).value(column, **row) == value
    assert PAPER.table(number).unit(column) == unit
