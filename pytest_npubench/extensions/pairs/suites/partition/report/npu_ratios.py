"""NPU-2 and NPU-3, operand order and weight shape on the static unit, a row an operator."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_order import NpuOrderDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_shape import NpuShapeDetail
from pytest_npubench.extensions.pairs.suites.partition.report.curves import operator_of
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import ratio, table
from pytest_npubench.reports.page import Table
from pytest_npubench.reports.reported import HETERO_INFER, note, reported
from pytest_npubench.verdict.case_record import CaseRecord

RATIOS = (
    "On the unit of static shapes alone; ratios are medians over the rounds' own ratios. NPU-2: the product with the "
    "activation as the first operand, over that with the weight first. NPU-3: the weight with more columns than rows, "
    "over the same numbers with more rows than columns. 1 is no difference; an interval needs 6 rounds."
)
UNKNOWN = (number_text.UNKNOWN,) * 3
"""Of an operator that has no case: with a square weight there is no other shape."""


def ratio_table(
    orders: Sequence[CaseRecord[NpuOrderDetail]], shapes: Sequence[CaseRecord[NpuShapeDetail]]
) -> Table | None:
    by_order = {operator_of(record): _order_cells(record.detail) for record in orders}
    by_shape = {operator_of(record): _shape_cells(record.detail) for record in shapes}
    if not by_order and not by_shape:
        return None
    order = reported("figure 4", "low", paper=HETERO_INFER, characteristic="order_ratio")
    low, high = (
        reported("figure 4", end, paper=HETERO_INFER, characteristic="ffn_down_speedup") for end in ("low", "high")
    )
    theirs = note(
        "figure 4",
        f"NPU-2 {order} for [14336, 4096] x [4096, K]",
        f"NPU-3: feed-forward down on the NPU at {low} to {high} times the GPU's speed",
        paper=HETERO_INFER,
    )
    return table(
        "Operand order and weight shape on the static unit",
        (
            ("operator", lambda name: name),
            ("NPU-2: activation first / weight first", lambda name: by_order.get(name, UNKNOWN)[0]),
            ("activation first ms", lambda name: by_order.get(name, UNKNOWN)[1]),
            ("weight first ms", lambda name: by_order.get(name, UNKNOWN)[2]),
            ("NPU-3: wide / tall", lambda name: by_shape.get(name, UNKNOWN)[0]),
            ("wide ms", lambda name: by_shape.get(name, UNKNOWN)[1]),
            ("tall ms", lambda name: by_shape.get(name, UNKNOWN)[2]),
        ),
        dict.fromkeys((*by_order, *by_shape)),
        note=f"{RATIOS} {theirs}",
        without_unknown=True,
    )


def _order_cells(detail: NpuOrderDetail) -> tuple[str, str, str]:
    found = ratio(detail.order_ratio, detail.order_ratio_interval)
    return found, _median_ms(detail.activation_first_s), _median_ms(detail.weight_first_s)


def _shape_cells(detail: NpuShapeDetail) -> tuple[str, str, str]:
    found = ratio(detail.shape_ratio, detail.shape_ratio_interval)
    return found, _median_ms(detail.wide_s), _median_ms(detail.tall_s)


def _median_ms(seconds: Sequence[float]) -> str:
    return number_text.milliseconds(statistics.median(seconds))
