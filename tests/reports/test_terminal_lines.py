"""The lines below the summary table, with scheduling cases among the others and alone."""

from __future__ import annotations

import pytest

from pytest_npubench.reports.terminal import folded, render_table, summary_lines
from pytest_npubench.suites import shown
from pytest_npubench.suites.scheduling.report.section import lines
from pytest_npubench.verdict.case_record import Cases

from .conftest import Rendered
from .served import LOADS, case_record, policy_record, ratios, served_records

LAYERED = [
    "layered / chunked: expert bytes -38 %, mean TTFT -45 %, mean TBT -17 %, mean E2E -39 %,",
    "  at 0.853 req/s (layered-arxiv-div32, small-moe, geometric mean of 3 blocks)",
]
DENSE = [
    "dense control, layered / chunked: mean TTFT +12 %, mean TBT +0 %, mean E2E +10 %, at 0.853 req/s",
    "  (layered-arxiv-div32, small-dense, geometric mean of 3 blocks)",
]


def test_scheduling_cases_alone() -> None:
    assert summary_lines(served_records(), shown) == [*LAYERED, *DENSE, "verdicts: 17 passed, 1 inconclusive"]


def test_beside_buckets_each_suite_keeps_its_own_lines(run: Rendered) -> None:
    alone = summary_lines(run.records, shown)
    both = summary_lines([*run.records, *served_records()], shown)
    assert [line for line in alone if not line.startswith("verdicts")] == [
        line for line in both if line not in (*LAYERED, *DENSE) and not line.startswith("verdicts")
    ]
    assert set(LAYERED) < set(both)
    assert max(map(len, both)) <= 100
    assert any(line.startswith("LENS profiling cost: 1 session, 3 buckets") for line in both)
    assert any(line.startswith("padding waste") and "layered" not in line for line in both)


def test_a_policy_case_has_no_padding_to_tell() -> None:
    assert summary_lines([policy_record("layered")], shown) == ["verdicts: 1 passed"]


@pytest.mark.parametrize(("ratio", "shown"), [(0.9951, "+0 %"), (1.006, "+1 %"), (2.0, "+100 %"), (0.55, "-45 %")])
def test_changes_are_rounded_to_whole_percents(ratio: float, shown: str) -> None:
    (line,) = lines(Cases.read([case_record("expert_loads", LOADS, metrics=ratios(ttft_ratio=ratio))]))
    assert line.startswith(f"layered / chunked: mean TTFT {shown}, at 0.853 req/s (")


def test_another_device_is_named_and_an_unmeasured_case_has_no_line() -> None:
    record = case_record("expert_loads", LOADS, metrics=ratios(ttft_ratio=0.5), device="cuda:1")
    (line,) = lines(Cases.read([record]))
    assert line.endswith("(layered-arxiv-div32, small-moe, geometric mean of 3 blocks, cuda:1)")
    assert lines(Cases.read([case_record("expert_loads")])) == []


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_stays_readable(width: int) -> None:
    text = render_table(served_records(), width=width, color=False)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    row = next(line for line in text.splitlines() if "400 ms" in line)  # mean TTFT of chunked prefill
    assert row.split().count("passed") == 1
    assert "%" not in row  # neither predicted nor an error


def own_record(name: str, iterations: int, measured_s: float) -> dict[str, object]:
    return {
        **policy_record("layered"),
        "case": f"own/callable/cpu-callable-b1-test_own.py::{name}",
        "id": f"cpu-callable-b1-test_own.py::{name}",
        "what": "one call" if iterations == 1 else f"one call, mean of {iterations}",
        "measured_s": measured_s,
        "detail": {"steady": True, "iterations": iterations, "overhead_s": 1e-7},
    }


def test_short_calls_of_ones_own_say_what_an_empty_call_takes() -> None:
    records = [own_record("test_a[1]", 16, 1e-6), own_record("test_b", 2, 8e-6), own_record("test_c", 1, 1e-7)]
    assert summary_lines(records, shown)[:2] == [
        "several calls a sample: 2 cases; an empty call in the same loop takes at most 10.0% of one",
        "  (cpu-callable-b1-test_own.py::test_a[1])",
    ]
    assert summary_lines(records[2:], shown) == ["verdicts: 1 passed"]


def test_brackets_of_an_id_are_no_style() -> None:
    table = render_table([own_record("test_a[red-1]", 16, 1e-6)], width=200, color=False, verbose=True)
    assert "cpu-callable-b1-test_own.py::test_a[red-1]" in table


@pytest.mark.parametrize("line", ["a" * 300, "x, " * 80, "", "short", "word " * 50 + "(with a bracket), and more"])
def test_lines_are_folded_without_losing_a_word(line: str) -> None:
    parts = folded(line, 100)
    assert "".join("".join(parts).split()) == "".join(line.split())
    if " " in line[:90]:
        assert max(map(len, parts)) <= 100
    assert all(part.startswith("  ") for part in parts[1:])
