"""Tables and line charts that are drawn from the names of fields, with their texts worked by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.reports.detail_parts import detail_parts
from pytest_npubench.reports.field_text import Field
from pytest_npubench.reports.page import Chart, Table
from pytest_npubench.verdict.case_record import Cases

from .page import check_svg
from .served import case_record

Json = dict[str, Any]


def case(detail: Json, *axes: tuple[str, int | str], kind: str = "npu_order", **fields: Any) -> Json:
    return case_record(kind, detail, axes=axes, **fields)


def drawn(*records: Json, **settings: Mapping[str, Any]) -> tuple[dict[str, Chart], dict[str, Table]]:
    """Charts by title and tables by caption."""
    charts, tables = detail_parts(Cases.read(records), **settings)
    return {chart.title: chart for chart in charts}, {table.caption: table for table in tables}


def lines_of(chart: Chart) -> dict[str, tuple[list[Any], list[Any]]]:
    return {line.name: (list(line.x), list(line.y)) for line in chart.figure.series}


@pytest.mark.parametrize(
    ("path", "values", "heading", "factor"),
    [
        (("ttft_mean_s",), (0.34, 0.0021), "TTFT mean, ms", 1e3),
        (("ttft_mean_s",), (1.34, 0.0021), "TTFT mean, s", 1.0),
        (("seconds",), (2e-6,), "time, µs", 1e6),
        (("weight_bytes",), (2.5e9,), "weight, GB", 1e-9),
        (("gpu_alone_bytes_per_s",), (1.5e10,), "GPU alone, GB/s", 1e-9),
        (("flops_per_s",), (4e9,), "rate, GFLOP/s", 1e-9),
        (("slope_s_per_output",), (8e-8,), "slope, ns/output", 1e9),
        (("tbt_std_per_request_s",), (0.01,), "TBT std per request, ms", 1e3),
        (("rate_per_s",), (4.02,), "rate, 1/s", 1.0),
        (("output_tokens_per_s",), (512.0,), "output, tokens/s", 1.0),
        (("bubble_fraction",), (0.4,), "bubble, %", 100.0),
        (("mj_per_prompt_and_output_token",), (45.0,), "energy, mJ/prompt and output token", 1.0),
        (("tokens",), (64,), "tokens", 1.0),
        (("chunk_size_tokens",), (64,), "chunk size, tokens", 1.0),
        (("num_output_tokens",), (64,), "output tokens", 1.0),
        (("power_w", "layered"), (95.5,), "power layered, W", 1.0),
        (("handover", "mean_s"), (0.003,), "handover mean, ms", 1e3),
        (("npu_fraction",), (None,), "NPU, %", 100.0),
    ],
)
def test_a_name_says_what_its_values_are_and_their_unit(
    path: tuple[str, ...], values: tuple[float | None, ...], heading: str, factor: float
) -> None:
    field = Field.of(path)
    unit, by = field.scale(values)
    assert (field.heading(unit), by) == (heading, factor)


def test_the_figures_of_one_case_stand_below_each_other() -> None:
    detail = {
        "speedup": 1.2341,
        "speedup_interval": [1.1, None],
        "slo": {"ttft_s": 0.7, "tbt_s": 0.0625},
        "why": "",
        "shape": [256, 1024, 1],
        "is_top1": True,
        "num_trips": 4000,
    }
    charts, tables = drawn(case(detail, ("workload", "arxiv"), measured_s=0.02), notes={"npu_order": "What it means."})
    assert not charts
    table = tables["NPU order, arxiv"]
    assert (table.header, table.note, table.shows) == (("figure", "value"), "What it means.", ("npu_order",))
    assert dict(table.rows) == {
        "speedup": "1.234",
        "speedup interval": "1.1 to –",
        "SLO TTFT, ms": "700",
        "SLO TBT, ms": "62.5",
        "shape": "256, 1,024, 1",
        "is top1": "yes",
        "trips": "4,000",
        "measured, ms": "20",
    }


def test_several_cases_are_rows_with_the_axes_in_which_they_differ() -> None:
    records = [
        case({"gain": 1.5, "cost": {"compile_s": 2.5, "points": 2}}, ("operator", name), ("model", "small"))
        for name in ("q", "down")
    ]
    charts, tables = drawn(*records)
    assert not charts
    assert tables["NPU order, small"].header == ("operator", "gain")
    assert tables["NPU order, small"].rows == (("q", "1.5"), ("down", "1.5"))
    assert tables["NPU order, small: cost"].header == ("operator", "cost compile, s", "cost points")
    assert tables["NPU order, small: cost"].rows == (("q", "2.5", "2"), ("down", "2.5", "2"))


def test_lines_go_over_the_whole_numbers_of_an_axis() -> None:
    """In ascending order, whatever that of the journal; of two cases there is no line."""
    loads = {256: 3.6e9, 64: 6.4e9, 1024: 8e8}
    records = [case({"load_bytes": load}, ("chunk", size), measured_s=size * 1e-4) for size, load in loads.items()]
    charts, tables = drawn(*records)
    assert not tables
    load = charts["NPU order: load by chunk"]
    assert lines_of(load) == {"load": ([64, 256, 1024], pytest.approx([6.4, 3.6, 0.8]))}
    assert load.summary == "NPU order: load by chunk: load from 6.4 to 0.8 GB."
    assert load.table.header == ("chunk", "load, GB")
    assert load.table.rows == (("256", "3.6"), ("64", "6.4"), ("1,024", "0.8"))
    assert lines_of(charts["NPU order: measured by chunk"])["measured"][1] == pytest.approx([6.4, 25.6, 102.4])
    assert not drawn(*records[:2])[0]


def test_lists_of_one_length_are_lines_over_the_first_whole_numbers() -> None:
    """A line for each case, or for each list that shares its unit with another."""
    details = {
        name: {"tokens": [1, 8, 64], "seconds": [t, 2 * t, 4 * t], "flops_per_s": [1e9, 2e9, 4e9], "floor_s": t}
        for name, t in (("q", 0.001), ("down", 0.002))
    }
    charts, tables = drawn(*(case(detail, ("operator", name)) for name, detail in details.items()))
    assert list(charts) == ["NPU order: time by tokens", "NPU order: rate by tokens"]
    times = lines_of(charts["NPU order: time by tokens"])
    assert times == {
        "q": ([1, 8, 64], pytest.approx([1, 2, 4])),
        "down": ([1, 8, 64], pytest.approx([2, 4, 8])),
    }
    assert tables["NPU order"].rows == (("q", "1"), ("down", "2"))
    one, _ = drawn(case({"groups": [2, 4, 8], "ttft_s": [0.2, 0.3, 0.5], "worst_tbt_s": [0.09, 0.06, 0.04]}))
    (chart,) = one.values()
    assert chart.title == "NPU order: TTFT and worst TBT by groups"
    assert lines_of(chart)["worst TBT"] == ([2, 4, 8], pytest.approx([90, 60, 40]))
    for figure in (chart, *charts.values()):
        check_svg(figure.figure)


def test_lists_without_whole_numbers_are_lines_over_their_places() -> None:
    charts, _ = drawn(case({"layered_s": [0.2, None, 0.25], "chunked_s": [0.4, 0.43, 0.46]}))
    (chart,) = charts.values()
    assert lines_of(chart)["layered"] == ([1, 2, 3], [pytest.approx(200), None, pytest.approx(250)])
    assert chart.table.rows[1] == ("2", "–", "430")


def test_records_with_names_are_rows_and_no_line() -> None:
    rows = [{"arm": "whole", "num_graphs": 1, "over": None}, {"arm": "shared", "num_graphs": 4, "over": 1.9}]
    by_name = {
        "ttft_mean_s": {"unit": "s", "value": 0.342, "interval": [0.311, 0.377], "num_samples": 40},
        "goodput": {"unit": "requests/s", "value": 2.5, "interval": None, "num_samples": 40},
    }
    charts, tables = drawn(case({"arms": rows, "figures": by_name, "empty": {}, "none": []}))
    assert not charts
    assert tables["NPU order: arms"].header == ("arm", "graphs", "over")
    assert tables["NPU order: arms"].rows == (("whole", "1", "–"), ("shared", "4", "1.9"))
    assert tables["NPU order: figures"].rows == (
        ("TTFT mean", "342 ms", "311 ms to 377 ms", "40"),
        ("goodput", "2.5 requests/s", "–", "40"),
    )
    assert list(tables) == ["NPU order: arms", "NPU order: figures"]


def test_what_the_caller_draws_itself_is_left_out() -> None:
    record = case({"ttft_s": 0.01, "spread": 0.2}, measured_s=0.01)
    _, tables = drawn(record, pictured={"npu_order": ("ttft_s", "measured_s")})
    assert tables["NPU order"].rows == (("spread", "0.2"),)
    assert drawn(record, pictured={"npu_order": ("ttft_s", "spread")}) == ({}, {})


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(-1e300, 1e300) | st.integers(-(10**300), 10**300) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(details=st.lists(st.dictionaries(st.text(max_size=8), VALUES, max_size=5), max_size=4), axis=st.integers(0, 2))
def test_any_detail_is_drawn_whole(details: list[Json], axis: int) -> None:
    """Rows have a cell for each column, and every figure is one that can be drawn."""
    records = [case(detail, ("bucket", number % (axis + 1))) for number, detail in enumerate(details)]
    charts, tables = detail_parts(Cases.read(records))
    for table in (*tables, *(chart.table for chart in charts)):
        assert {len(row) for row in table.rows} == {len(table.header)}
    for chart in charts:
        check_svg(chart.figure)
