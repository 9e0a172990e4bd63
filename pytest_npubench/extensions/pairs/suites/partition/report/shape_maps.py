"""How fast a unit is by shape, as a map: weights across, tokens down, the stronger the colour the faster; and what the
order of the operands and the shape of the weight do to the static unit (HeteroInfer, section 3.2, NPU-1 to NPU-3).

Worked number: [512, 2048] x 32 tokens in 1 ms are 2 x 512 x 2048 x 32 / 0.001 s = 67.11 GFLOP/s.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_npubench.errors import RegistryError
from pytest_npubench.extensions.pairs.partition.model_shapes import operators
from pytest_npubench.extensions.pairs.suites.partition.kinds.gpu_linear import GpuLinearDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_order import NpuOrderDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_shape import NpuShapeDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_stage import NpuStageDetail
from pytest_npubench.extensions.pairs.suites.partition.report.choices import operator_of
from pytest_npubench.reports import number_text
from pytest_npubench.reports.build import plain, series_table
from pytest_npubench.reports.page import Chart
from pytest_npubench.reports.plot_parts import Cell, CellGrid
from pytest_npubench.verdict.case_record import CaseRecord

RATE = "The number is GFLOP/s, 2 x rows x columns x tokens over the median time; an empty cell was not measured."
STAGE = (
    "A heavy line is where a fitted stage ends: below it the unit does one more tile for the first token. Within a "
    "stage the time stands still, so the rate grows, and it falls behind the line."
)
NO_STAGE = "No operator's times show a stage, so no line is drawn."
ARMS = (
    "Median time over the rounds on the static unit alone; the stronger the colour, the nearer to the fastest of the "
    "row. Weight first and activation first are one product and its transpose; tall and wide are one weight with its "
    "sides exchanged."
)
SIDES = ("weight first", "activation first", "tall", "wide")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeColumn:
    """One weight [rows, cols] on one unit: seconds by tokens, and the width of its stages where one was fitted."""

    operator: str
    rows: int
    cols: int
    seconds: Mapping[int, float]
    stage_tokens: int | None = None

    def gflops_per_s(self, tokens: int) -> float:
        return 2 * self.rows * self.cols * tokens / self.seconds[tokens] * 1e-9

    def begins_stage(self, tokens: int, before: int | None) -> bool:
        """Whether a stage ends between the row above and this one."""
        width = self.stage_tokens
        if not width or before is None:
            return False
        return -(-tokens // width) != -(-before // width)


def npu_map(records: Sequence[CaseRecord[NpuStageDetail]]) -> Chart | None:
    candidates = (
        _column(one.model, operator_of(one), one.detail.tokens, one.detail.seconds, one.detail.stage_tokens)
        for one in records
    )
    columns = [column for column in candidates if column is not None]
    any_stage = any(column.stage_tokens for column in columns)
    return _map("Speed of the static unit by shape", columns, (RATE, STAGE if any_stage else NO_STAGE))


def gpu_map(records: Sequence[CaseRecord[GpuLinearDetail]]) -> Chart | None:
    candidates = (_column(one.model, operator_of(one), one.detail.tokens, one.detail.seconds) for one in records)
    columns = [column for column in candidates if column is not None]
    return _map("Speed of the unit of dynamic shapes by shape", columns, (RATE,))


def side_map(
    orders: Sequence[CaseRecord[NpuOrderDetail]], shapes: Sequence[CaseRecord[NpuShapeDetail]]
) -> Chart | None:
    """Returns a row an operator, a column for each order of the operands and each shape of the weight."""
    median = statistics.median
    times_of: dict[str, dict[str, float]] = {}
    for order in orders:
        times_s = median(order.detail.weight_first_s), median(order.detail.activation_first_s)
        times_of.setdefault(operator_of(order), {}).update(zip(SIDES[:2], times_s, strict=True))
    for shape in shapes:
        times_s = median(shape.detail.tall_s), median(shape.detail.wide_s)
        times_of.setdefault(operator_of(shape), {}).update(zip(SIDES[2:], times_s, strict=True))
    timed = {name: seconds for name, seconds in times_of.items() if min(seconds.values()) > 0}
    if not timed:
        return None
    title = "Order and shape on the static unit"
    texts = {name: number_text.figures([seconds.get(side) for side in SIDES], "s") for name, seconds in timed.items()}
    return Chart(
        title=title,
        summary=f"{title}: {'; '.join(_fastest(name, seconds) for name, seconds in timed.items())}.",
        notes=(ARMS,),
        figure=CellGrid(
            rows_title="operator",
            rows=tuple(timed),
            columns=tuple((side, "") for side in SIDES),
            cells=tuple(
                tuple(_side_cell(name, side, seconds, text) for side, text in zip(SIDES, texts[name], strict=True))
                for name, seconds in timed.items()
            ),
            shades=("half as fast or less", "fastest of the row"),
        ),
        table=series_table(
            title,
            "operator",
            list(timed),
            {side: [texts[name][index] for name in timed] for index, side in enumerate(SIDES)},
        ),
        shows=("npu_order", "npu_shape"),
    )


def _side_cell(name: str, side: str, seconds: Mapping[str, float], text: str) -> Cell | None:
    if side not in seconds:
        return None
    share = min(seconds.values()) / seconds[side]
    return Cell(
        text=text,
        shade=max(0.0, 2 * share - 1),
        sentence=f"{name}, {side}: {text}, {number_text.percent(share)} % of the row's highest speed",
    )


def _fastest(name: str, seconds: Mapping[str, float]) -> str:
    return f"{name} fastest with {min(seconds, key=lambda side: seconds[side])}"


def _column(
    model: str, operator: str, tokens: Sequence[int], seconds: Sequence[float], stage_tokens: int | None = None
) -> ShapeColumn | None:
    """None for a weight that is not known: a journal of another version may name another model."""
    times_s = {count: time_s for count, time_s in zip(tokens, seconds, strict=True) if time_s > 0}
    try:
        shape = next((one for one in operators(model) if one.name == operator), None)
    except RegistryError:
        shape = None
    if shape is None or not times_s:
        return None
    return ShapeColumn(operator=operator, rows=shape.rows, cols=shape.cols, seconds=times_s, stage_tokens=stage_tokens)


def _map(title: str, columns: Sequence[ShapeColumn], notes: tuple[str, ...]) -> Chart | None:
    if not columns:
        return None
    tokens = sorted({count for column in columns for count in column.seconds})
    best = max(column.gflops_per_s(count) for column in columns for count in column.seconds)
    cells = tuple(
        tuple(_cell(column, count, before, best) for column in columns)
        for before, count in zip((None, *tokens), tokens, strict=False)
    )
    return Chart(
        title=title,
        summary=f"{title}, {len(tokens)} lengths: {'; '.join(map(_summary, columns))}.",
        notes=notes,
        figure=CellGrid(
            rows_title="tokens",
            rows=tuple(map(number_text.count, tokens)),
            columns=tuple((column.operator, f"{column.rows} x {column.cols}") for column in columns),
            cells=cells,
            shades=("0", f"{plain(best)} GFLOP/s"),
        ),
        table=series_table(
            title,
            "tokens",
            list(map(number_text.count, tokens)),
            {
                f"{column.operator} [{column.rows}, {column.cols}], GFLOP/s": [
                    plain(column.gflops_per_s(count) if count in column.seconds else None) for count in tokens
                ]
                for column in columns
            },
        ),
    )


def _cell(column: ShapeColumn, tokens: int, before: int | None, best: float) -> Cell | None:
    if tokens not in column.seconds:
        return None
    rate = column.gflops_per_s(tokens)
    shape = f"{column.operator} [{column.rows}, {column.cols}] x {number_text.count(tokens)} tokens"
    return Cell(
        text=f"{rate:.3g}" if rate < 1e3 else f"{rate:,.0f}",
        shade=rate / best,
        steps=column.begins_stage(tokens, before),
        sentence=f"{shape}: {plain(rate)} GFLOP/s, {number_text.time(column.seconds[tokens])}, "
        f"{number_text.percent(rate / best)} % of the fastest cell",
    )


def _summary(column: ShapeColumn) -> str:
    low, high = (pick(column.seconds, key=column.gflops_per_s) for pick in (min, max))
    ends = (f"{plain(column.gflops_per_s(count))} GFLOP/s at {number_text.count(count)}" for count in (low, high))
    return f"{column.operator} from {' to '.join(ends)} tokens"
