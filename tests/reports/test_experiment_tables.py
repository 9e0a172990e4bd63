"""Tables of layered beside chunked prefill, and the paper's figures in them, from records written down by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.reports import html
from pytest_npubench.reports.reported import conditions, label, model_of, reported, workload_of
from pytest_npubench.reports.terminal import folded
from pytest_npubench.store.journal import Journal
from pytest_npubench.suites import shown
from pytest_npubench.suites.scheduling.report.section import parts
from pytest_npubench.verdict import Verdict, VerdictKind
from pytest_npubench.verdict.case_record import Cases

from .page import read, table_of
from .served import (
    ATTAINMENT,
    CHUNK_RATES,
    DENSE,
    ENERGY,
    LOADS,
    RELAXED,
    WORKLOAD,
    apart_record,
    case_record,
    metric,
    ratios,
    served_records,
)

LOAD = "layered-arxiv-div32 at 0.853 req/s"
SPACE = "\u00a0"


def only(record: dict[str, Any]) -> tuple[dict[str, list[str]], str]:
    """Rows of the record's one table by their first cell, and the note; the header is the row "figure"."""
    _, (made,), _ = parts(Cases.read([record]), ())
    assert made is not None
    rows = [made.header, *made.rows]
    return {row[0]: [cell.replace(SPACE, " ") for cell in row[1:]] for row in rows}, made.note


def energy_record(model: str = "small-moe") -> dict[str, Any]:
    values = {
        "layered_mj_per_prompt_and_output_token": 45.0,
        "chunked_mj_per_prompt_and_output_token": 50.0,
        "layered_mj_per_output_token": 1800.0,
        "chunked_mj_per_output_token": 2000.0,
        "layered_mj_above_idle_per_prompt_and_output_token": 30.0,
        "chunked_mj_above_idle_per_prompt_and_output_token": 36.0,
    }
    metrics = [
        metric("energy_ratio", 0.9, samples=(0.8, 1.0125)),
        *(metric(name, value, "mJ") for name, value in values.items()),
    ]
    detail = replace(ENERGY, power_w={"layered": 95.5, "chunked": 99.5}, idle_power_w=40.25)
    return case_record("energy", detail, metrics=metrics, model=model)


def test_energy_has_both_denominators_and_idle_apart() -> None:
    rows, note = only(energy_record())
    assert rows["figure"] == [
        "layered",
        "chunked",
        "layered / chunked",
        "reported layered",
        "reported chunked",
        "reported layered / chunked",
    ]
    ratio = "0.9 (blocks 0.8 to 1.01)"
    assert rows["energy per prompt and output token, mJ"] == ["45", "50", ratio, "51.7", "56.6", "0.913"]
    assert rows["energy per output token, mJ"] == ["1,800", "2,000", ratio, "–", "–", "–"]
    assert rows["above idle power, per prompt and output token, mJ"][:2] == ["30", "36"]
    assert rows["mean power, W"][:2] == ["95.5", "99.5"]
    assert rows["idle power, W"][:2] == ["40.25", "40.25"]
    assert note.endswith(
        "Reported (Layered Prefill, Table 8: qwen3-30b-a3b on 2 x nvidia-h100, layered-arxiv at 1.3 req/s; its energy "
        "is a prompt and output token, though its text calls it an output token): printed in the paper, not measured "
        "here and compared with nothing."
    )


def test_gpt_oss_stands_beside_its_own_rows() -> None:
    rows, note = only(energy_record("gpt-oss-20b"))
    assert rows["energy per prompt and output token, mJ"][3:] == ["34.3", "37.4", "0.917"]
    assert "gpt-oss-20b on 2 x nvidia-h100, layered-arxiv at 2.1 req/s" in note


def test_energy_that_could_not_be_read_says_why() -> None:
    (record,) = (record for record in served_records() if "/energy/" in record["case"])
    rows, note = only(record)
    assert rows["energy per prompt and output token, mJ"] == ["unavailable", "unavailable", "51.7", "56.6", "0.913"]
    assert note.startswith("Energy unavailable: /sys/x: permission denied. ")
    assert "idle power, W" not in rows


def test_expert_loads() -> None:
    measured = ratios(expert_load_ratio=0.62, ttft_ratio=0.55)
    rows, note = only(case_record("expert_loads", LOADS, metrics=measured))
    blocks = "0.62 (blocks 0.62 to 0.62)"
    assert rows["expert bytes, GB"] == ["62", "100", blocks, "21,700", "35,600", "0.61"]  # Table 7
    assert rows["mean TTFT"] == ["–", "–", "0.55 (blocks 0.55 to 0.55)", "–", "–", "–"]
    assert "layered-arxiv; totals of 100 requests" in note
    sharegpt = case_record("expert_loads", LOADS, metrics=measured, axes=(("workload", "layered-sharegpt-div8"),))
    _, (loads,), _ = parts(Cases.read([sharegpt]), ())
    assert list(loads.rows[0][1:])[3:] == ["25,100", "28,500", "0.881"]


def test_the_dense_control_has_no_columns_without_figures() -> None:
    rows, note = only(case_record("dense_control", DENSE, metrics=ratios(ttft_ratio=1.12, tbt_ratio=1.004)))
    assert rows["figure"][0] == "layered / chunked"
    assert rows["mean TTFT, ms"] == ["1.12 (blocks 1.12 to 1.12)", "1,450", "955", "1.52"]  # section 5.13
    assert rows["mean TBT, ms"][1:] == ["20.3", "16.2", "1.25"]
    assert "section 5.13: qwen3-8b on 1 x nvidia-h100, layered-arxiv at 1.5 req/s" in note


def test_the_dense_control_s_interval_stands_where_it_is_known() -> None:
    detail = replace(DENSE, ttft_ratio_interval=(0.98, 1.3))
    rows, _ = only(case_record("dense_control", detail, metrics=ratios(ttft_ratio=1.12)))
    assert rows["mean TTFT, ms"][0] == "1.12 (95 % 0.98 to 1.3)"


def test_prefill_and_decode_apart() -> None:
    rows, note = only(apart_record())
    assert rows["policy"] == ["mean TTFT, ms", "p99 TTFT, ms", "mean TBT, ms", "p99 TBT, ms"]
    assert rows["disaggregated"] == ["500", "1,500", "20", "40"]
    assert rows[f"disaggregated,{SPACE}reported"] == ["3,940", "11,200", "16.4", "25.8"]  # Table 10
    assert f"hybrid,{SPACE}reported" not in rows
    assert f"Mean TBT, apart / layered: 0.8 (0.7{SPACE}to{SPACE}0.9). Mean TTFT, apart / layered: 1.25." in note
    assert "24 requests handed over, 2 MB each, in 3 ms." in note


def test_chunk_sizes_at_one_ttft() -> None:
    rows, note = only(case_record("chunk_rate", CHUNK_RATES))
    assert rows["64 tokens"] == ["2 (1.9 to 2.2)", "600", "20", "50", "2", "unavailable"]
    assert rows["1,024 tokens"][0] == "3"
    theirs = f"1,024{SPACE}tokens,{SPACE}reported"
    assert rows[theirs] == ["1.7", "2,320", "43.6", "83.4", "631", "45.4"]  # Table 2
    assert note.startswith("At a median TTFT of 750 ms. ")
    assert "Not in the paper's order: mean TBT, ms, expert bytes a request, GB. Reported (" in note


def test_chunk_sizes_without_a_crossing_say_why() -> None:
    verdict = Verdict(kind=VerdictKind.INCONCLUSIVE, reason="attainment does not cross 50%")
    rows, note = only(case_record("chunk_rate", replace(CHUNK_RATES, rows=(), as_published={}), verdict=verdict))
    assert rows["64 tokens"] == ["unavailable"] * 6
    assert "Attainment does not cross 50%. Reported (" in note


def test_offline_throughput_is_turned_the_right_way_up() -> None:
    ratio = metric("throughput_chunked_over_layered", 0.8, samples=(0.5, 1.25))
    metrics = [ratio, metric("layered_output_tokens_per_s", 50.0, "tokens/s")]
    rows, note = only(case_record("relaxed_slo", RELAXED, metrics=metrics))
    assert rows["output tokens/s"] == ["50", "unavailable", "1.25 (blocks 0.8 to 2)", "391.6", "315.4", "1.24"]
    assert "output tokens/s, 4 times the work an iteration" in rows
    assert "2.47 s mean TTFT and 78.6 ms mean TBT" in note


def test_capacities_have_their_intervals() -> None:
    why = {"layered": "crosses 90%", "chunked": ""}
    rows, note = only(case_record("attainment", replace(ATTAINMENT, why=why)))
    assert rows["capacity at 90 % attainment, req/s"] == [
        "1.5 (1.4 to 1.6)",
        "1.2",
        "1.25 (1.1 to 1.4)",
        "1.6",
        "1.3",
        "1.23",
    ]
    assert "layered: crosses 90%. Reported (" in note


def test_each_experiment_has_its_own_part_of_the_page() -> None:
    records = [*served_records(), energy_record()]
    page = read(html.render_html(records, Journal(path=Path("j"), sessions=(), records=(), torn=()), shown))
    headings = [heading.text for heading in page.all("h3")]
    for name in (
        f"Energy: {LOAD}",
        f"Expert loads: {LOAD}",
        f"Offline throughput: {WORKLOAD}",
        f"Capacity: {WORKLOAD}",
        f"Dense control: {LOAD}",
        f"Prefill and decode apart: {LOAD}",
        f"Chunk sizes at one TTFT: {WORKLOAD}",
        f"Latencies under {LOAD}",
        f"Bursty arrivals: {LOAD}, CV 1.83, realised 1.4",
    ):
        assert name in headings, name


def test_latencies_have_mean_p50_p95_p99_and_the_papers() -> None:
    page = read(html.render_html(served_records(), Journal(path=Path("j"), sessions=(), records=(), torn=()), shown))
    rows = {(row[0], row[1]): row[2:] for row in table_of(page, f"Latencies under {LOAD}")}
    assert rows["latency, ms", "policy"] == ["mean", "p50", "p95", "p99", "n", "rests on"]
    assert rows["TTFT", "chunked"] == [
        "400 (360 to 440)",
        "350 (315 to 385)",
        "1,200 (1,080 to 1,320)",
        "1,500 (1,350 to 1,650)",
        "24",
        "p99: the maximum: fewer than 100 samples",
    ]
    assert rows["TTFT", "chunked, reported"] == ["2,800", "–", "–", "8,650", "–", ""]  # Table 6
    assert rows["TBT", "layered, reported"][:4] == ["21.5", "–", "–", "37.1"]
    assert rows["E2E", "layered, reported"][:4] == ["5,500", "–", "–", "–"]  # section 5.5
    assert rows["E2E", "layered"][1:4] == ["–", "–", "–"]


def test_reported_figures_are_the_papers_or_unknown() -> None:
    assert reported("6", "ttft_mean", 1e3, policy="layered") == "1,240"
    assert reported("6", "ttft_p95", policy="layered") == "–"
    assert reported("6", "ttft_mean", policy="hybrid") == "–"
    assert reported("99", "ttft_mean") == "–"
    assert conditions("10") == "Table 10: qwen3-30b-a3b on 2 x nvidia-h100"
    assert conditions("5.9 offline").startswith("section 5.9: ")
    assert label("a", "b") == (
        "Reported (Layered Prefill, a; b): printed in the paper, not measured here and compared with nothing."
    )
    assert (model_of("8", "gpt-oss-20b"), model_of("8", "small-moe")) == ("gpt-oss-20b", "qwen3-30b-a3b")
    assert (workload_of("7", "layered-sharegpt-div4"), workload_of("7", "mine")) == (
        "layered-sharegpt",
        "layered-arxiv",
    )


@pytest.mark.parametrize("line", ["a" * 300, "x, " * 80, "", "short", "word " * 50 + "(with a bracket), and more"])
def test_lines_are_folded_without_losing_a_word(line: str) -> None:
    parts = folded(line, 100)
    assert "".join("".join(parts).split()) == "".join(line.split())
    if " " in line[:90]:
        assert max(map(len, parts)) <= 100
    assert all(part.startswith("  ") for part in parts[1:])
