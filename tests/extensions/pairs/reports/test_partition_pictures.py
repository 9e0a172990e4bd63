"""The pictures of the partition suite: what a cell shows is what the journal holds, and what an eye sees follows it."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.extensions.pairs.suites.partition.kinds.gpu_linear import GpuLinearDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_order import NpuOrderDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_shape import NpuShapeDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.npu_stage import NpuStageDetail
from pytest_npubench.extensions.pairs.suites.partition.kinds.solver import SolverDetail
from pytest_npubench.extensions.pairs.suites.partition.report.section import parts
from pytest_npubench.reports import svg
from pytest_npubench.reports.plot_parts import Cell, CellGrid
from pytest_npubench.verdict.case_record import Cases

from .paired import pair_record

MODEL = "internlm-1.8b-div4"
WEIGHTS = {"attention_q": (512, 512), "ffn_gate_up": (4096, 512), "ffn_down": (512, 2048)}  # config.json, over 4
SVG = "{http://www.w3.org/2000/svg}"
TOKENS = (16, 32, 36, 64, 68)
Json = dict[str, Any]


def operator_case(kind: str, operator: str, detail: object, *axes: tuple[str, int], **judged: Any) -> Json:
    own = (("operator", operator), *axes)
    return pair_record("partition", kind, MODEL, detail, axes=own, campaign="c", **judged)


def stage_case(operator: str, seconds: tuple[float, ...], stage_tokens: int | None = None) -> Json:
    detail = NpuStageDetail(tokens=TOKENS, seconds=seconds, stage_tokens=stage_tokens, step_s=0.001)
    return operator_case("npu_stage", operator, detail)


def solver_case(operator: str, tokens: int, strategy: str, gpu_share: float, decided_s: float) -> Json:
    rows, cols = WEIGHTS[operator]
    detail = SolverDetail(
        operator=operator,
        shape=(rows, cols, tokens),
        strategy=strategy,
        split="all on npu as 256+64",
        best_strategy="npu_only",
        best_split="all on npu as 64",
        decided_s=decided_s,
        best_s=decided_s * 0.9,
        single_s=decided_s * 1.5,
        regret=1 / 0.9 - 1,
        speedup=1.5,
        gpu_share=gpu_share,
        weights="warm",
        warm_decided_s=None,
        warm_speedup=None,
    )
    return operator_case("solver", operator, detail, ("tokens", tokens), predicted_s=decided_s * 1.1)


def chart_of(records: list[Json], title: str) -> Any:
    cases = Cases.read(records)
    charts, _, _ = parts(cases, ())
    assert cases.unread == []
    (found,) = [chart for chart in charts if chart.title == title]
    return found


def drawn(grid: CellGrid) -> ElementTree.Element:
    return ElementTree.fromstring(svg.draw(grid, label="a map").replace("<svg ", f'<svg xmlns="{SVG[1:-1]}" ', 1))


def told(grid: CellGrid) -> dict[str, ElementTree.Element]:
    """What a cell says -> its rectangle."""
    return {box.findtext(f"{SVG}title", ""): box for box in drawn(grid).iter(f"{SVG}rect") if len(box)}


def test_a_cell_is_the_rate_of_its_time_and_the_strongest_is_the_fastest() -> None:
    times_s = {"ffn_gate_up": (2e-3, 2e-3, 4e-3, 4e-3, 6e-3), "ffn_down": (1e-4, 1.1e-4, 3e-4, 3.2e-4, 5e-4)}
    grid = chart_of(
        [stage_case(name, own) for name, own in times_s.items()], "Speed of the static unit by shape"
    ).figure
    assert grid.columns == (("ffn_gate_up", "4096 x 512"), ("ffn_down", "512 x 2048"))
    assert grid.rows == ("16", "32", "36", "64", "68")
    rates: dict[tuple[str, int], float] = {}
    opacities: dict[tuple[str, int], float] = {}
    for said, box in told(grid).items():
        found = re.match(r"(\w+) \[\d+, \d+\] x (\d+) tokens: ([\d.]+) GFLOP/s, ([\d.]+) (ms|µs), ", said)
        assert found is not None, said
        place = found[1], int(found[2])
        rates[place], opacities[place] = float(found[3]), float(box.attrib["fill-opacity"])
    expected = {
        (name, tokens): 2 * WEIGHTS[name][0] * WEIGHTS[name][1] * tokens / seconds / 1e9
        for name, own in times_s.items()
        for tokens, seconds in zip(TOKENS, own, strict=True)
    }
    assert rates == pytest.approx(expected, rel=6e-4)
    assert sorted(opacities, key=opacities.__getitem__)[-1] == max(expected, key=expected.__getitem__)
    for one in rates:
        for other in rates:
            assert (opacities[one] <= opacities[other]) or expected[one] > expected[other]


def test_a_line_stands_above_the_first_row_of_each_stage() -> None:
    records = [stage_case("attention_q", (1e-3,) * 5, 32), stage_case("ffn_down", (1e-3,) * 5)]
    chart = chart_of(records, "Speed of the static unit by shape")
    steps = {
        row: [cell.steps for cell in cells] for row, cells in zip(chart.figure.rows, chart.figure.cells, strict=True)
    }
    # 16 and 32 tokens are one tile of 32, 36 and 64 are two, 68 is a third
    assert steps == {"16": [False] * 2, "32": [False] * 2, "36": [True, False], "64": [False] * 2, "68": [True, False]}
    assert len([path for path in drawn(chart.figure).iter(f"{SVG}path") if path.get("class") == "step"]) == 2
    assert "heavy line" in chart.notes[1]
    without = chart_of([stage_case("attention_q", (1e-3,) * 5)], "Speed of the static unit by shape")
    assert "no line is drawn" in without.notes[1]


def test_weights_that_nobody_knows_are_left_out() -> None:
    known, other = stage_case("attention_q", (1e-3,) * 5), stage_case("attention_q", (1e-3,) * 5)
    cases = Cases.read([{**other, "model": "of-tomorrow"}])
    assert "Speed of the static unit by shape" not in [chart.title for chart in parts(cases, ())[0]]
    both = chart_of([known, {**other, "model": "of-tomorrow"}], "Speed of the static unit by shape")
    assert len(both.figure.columns) == 1


def test_the_unit_of_dynamic_shapes_has_its_own_map() -> None:
    detail = GpuLinearDetail(
        tokens=(1, 2),
        seconds=(1e-4, 1e-4),
        flops_per_s=(1.0, 2.0),
        threshold_tokens=None,
        floor_s=0,
        slope_s_per_token=0,
    )
    chart = chart_of(
        [operator_case("gpu_linear", "attention_q", detail)], "Speed of the unit of dynamic shapes by shape"
    )
    assert [[cell.text for cell in row] for row in chart.figure.cells] == [["5.24"], ["10.5"]]  # 2 x 512 x 512 / 1e-4 s
    assert chart.table.rows == (("1", "5.243"), ("2", "10.49"))


def test_order_and_shape_are_shaded_within_their_row() -> None:
    order = NpuOrderDetail(
        order_ratio=6, order_ratio_interval=None, weight_first_s=(1e-3, 1e-3, 3e-3), activation_first_s=(6e-3,) * 3
    )
    shape = NpuShapeDetail(shape_ratio=1.25, shape_ratio_interval=None, tall_s=(1e-3,), wide_s=(1.25e-3,))
    records = [operator_case("npu_order", "ffn_gate_up", order), operator_case("npu_shape", "ffn_gate_up", shape)]
    chart = chart_of([*records, operator_case("npu_order", "attention_q", order)], "Order and shape on the static unit")
    first, second = chart.figure.cells
    assert [cell.text for cell in first] == ["1 ms", "6 ms", "1 ms", "1.25 ms"]
    assert [cell.shade for cell in first] == pytest.approx([1, 0, 1, 0.6])  # 0.8 of the highest speed is 0.6 of the way
    assert second[2:] == (None, None)
    assert chart.shows == ("npu_order", "npu_shape")


def test_shares_of_the_solver_are_bars_and_its_times_marks() -> None:
    records = [
        solver_case("ffn_down", 300, "activation_centric", 0.25, 2e-3),
        solver_case("ffn_down", 1, "gpu_only", 1.0, 1e-4),
        solver_case("attention_q", 1, "npu_only", 0.0, 3e-7),
    ]
    chart = chart_of(records, "What the solver chose")
    grid = chart.figure
    assert (grid.rows, [name for name, _ in grid.columns]) == (("1", "300"), ["ffn_down", "attention_q"])
    ((one, small), (many, missing)) = grid.cells
    assert missing is None
    assert [(cell.text, cell.aside, cell.share) for cell in (one, small, many)] == [
        ("GPU only", "100:0", 1.0),
        ("NPU only", "0:100", 0.0),
        ("activation", "25:75", 0.25),
    ]
    assert many.sentence == (
        "ffn_down x 300 tokens: activation-centric, all on npu as 256+64, GPU 25.00 % of the outputs; decided, "
        "measured 2 ms, predicted 2.2 ms, best of all splits 1.8 ms, best single unit 3 ms; best split NPU only, "
        "all on npu as 64"
    )
    assert "decided, measured 300 ns, predicted 330 ns" in small.sentence
    bars = [box for box in drawn(grid).iter(f"{SVG}rect") if box.get("pointer-events")]
    widths = [float(box.attrib["width"]) for box in bars]
    assert len(widths) == 4  # of units that have something to do
    assert widths[2] / (widths[2] + widths[3]) == pytest.approx(0.25, abs=0.01)
    assert [box.get("class") for box in bars] == [None, "hatched", None, "hatched"]  # told apart in grey too
    times = chart_of(records, "Times of the solver's choices: ffn_down")
    found = {series.name: list(series.x) for series in times.figure.series}
    assert found == {
        "best single unit": pytest.approx([0.15, 3]),
        "best of all splits": pytest.approx([0.09, 1.8]),
        "predicted": pytest.approx([0.11, 2.2]),
        "decided, measured": pytest.approx([0.1, 2]),
    }
    assert times.figure.x.title == "ms"
    assert times.shows == tuple(record["case"] for record in (records[1], records[0]))
    assert times.table.rows[0][2:6] == ("150 µs", "90 µs", "110 µs", "100 µs")


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)
cells = st.none() | st.builds(
    Cell, text=texts, sentence=texts, aside=texts, shade=st.none() | st.floats(0, 1), share=st.none() | st.floats(0, 1)
)


@given(st.lists(st.lists(cells, min_size=2, max_size=2), min_size=1, max_size=3), st.booleans(), texts)
def test_any_grid_is_xml_inside_its_box(rows: list[list[Cell | None]], shared: bool, name: str) -> None:
    grid = CellGrid(
        rows_title=name,
        rows=tuple(name for _ in rows),
        columns=((name, ""), ("b", name)),
        cells=tuple(map(tuple, rows)),
        shades=None if shared else ("0", name),
        parts=("one", "other") if shared else None,
    )
    root = drawn(grid)
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    for box in root.iter(f"{SVG}rect"):
        x, y, wide, high = (float(box.attrib[side]) for side in ("x", "y", "width", "height"))
        assert min(x, y, wide, high) >= 0
        assert x + wide <= width
        assert y + high <= height
