"""Figures printed in papers: the shipped file against values typed from the paper, and every error with its words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from papers import load_published, published

from pytest_npubench.core.hardware_reader import default_directory as hardware_directory
from pytest_npubench.errors import ConfigError
from pytest_npubench.suites.hardware_files import load_all

PAPER = published("layered_prefill")

GOOD = """
title = "A paper"
authors = "Somebody"

[tables.1]
section = "3"
caption = "speeds"
model = "one"
rate_per_s = 2
columns = ["policy", "ttft"]
units = ["", "s"]
rows = [["chunked", 1.5], ["layered", 1]]
"""


def written(directory: Path, *edits: tuple[str, str]) -> Path:
    text = GOOD
    for old, new in edits:
        assert old in text
        text = text.replace(old, new, 1)
    path = directory / "paper.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_tables_are_those_of_the_paper() -> None:
    assert [table.number for table in PAPER.tables] == [
        *("1", "2", "5", "6", "7", "8", "9", "10", "11", "12"),
        *("5.5", "5.9 offline", "5.9 relaxed", "5.11", "5.13", "figure 2"),
    ]
    assert len(PAPER.notes) == 2


@pytest.mark.parametrize(
    ("number", "column", "row", "value", "unit"),
    [
        ("1", "coverage", {"batch_size": 32}, 54.7, "%"),
        ("2", "expert_load", {"chunk_size": 1024}, 631, "GB/request"),
        ("5", "tbt", {"model": "gpt-oss-20b", "workload": "layered-arxiv"}, 100, "ms"),
        ("6", "ttft_mean", {"policy": "chunked"}, 2.8, "s"),
        ("7", "reduction", {"workload": "layered-arxiv", "policy": "layered"}, 39.0, "%"),
        ("8", "energy", {"model": "qwen3-30b-a3b", "rate": 1.6}, 44.2, "mJ/token"),
        ("9", "tbt_p99", {"hardware": "nvidia-a100", "policy": "layered"}, 53.6, "ms"),
        ("10", "tbt_mean", {"policy": "disaggregated"}, 16.4, "ms"),
        ("11", "ttft_p95", {"layer_groups": 16}, 3.47, "s"),
        ("12", "jain_index", {"cv": 1.83, "policy": "layered"}, 0.850, ""),
        ("5.9 offline", "throughput", {"policy": "layered"}, 391.59, "tokens/s"),
        ("5.13", "tbt_mean", {"policy": "layered"}, 20.3, "ms"),
        ("figure 2", "expert_load", {"chunk_size": 8192}, 57, "GB"),
    ],
)
def test_values_are_the_printed_ones(
    number: str, column: str, row: dict[str, float | str], value: float, unit: str
) -> None:
    table = PAPER.table(number)
    assert table.value(column, **row) == value
    assert table.unit(column) == unit


@pytest.mark.parametrize(
    ("number", "column", "row", "value"),
    [
        ("3", "error", {"method": "operator-sum", "lengths": "512/512"}, -63.58),
        ("3", "error", {"method": "layer-sum", "lengths": "512/512"}, 22.02),
        ("3", "error", {"method": "layer-sum", "lengths": "2048/2048"}, -11.35),
        ("3", "error", {"method": "kernel-sum", "lengths": "1024/1024"}, 493.3),
        ("figure 6", "error", {"quantity": "TPU v5e, max"}, 11.47),
        ("figure 7", "error", {"method": "MaverIQ"}, 33),
        ("figure 8", "batch_size", {"model_name": "Mistral 7B", "dataset": "ArXiv"}, 16),
        ("5.3 cost", "time", {"method": "LLMServingSim 2.0"}, 420),
        ("5.3 compilations", "compilations", {"method": "LENS"}, 12),
        ("5.4", "change", {}, 7),
    ],
)
def test_values_of_lens_are_the_printed_ones(number: str, column: str, row: dict[str, str], value: float) -> None:
    assert published("lens").table(number).value(column, **row) == value


def test_lens_errors_over_npus_and_over_all_agree() -> None:
    """The mean over 248 cases lies among the means of the four NPUs (section 5.2)."""
    errors = published("lens").table("figure 6")
    means = [
        float(errors.value("error", quantity=f"{npu}, mean")) for npu in ("Inferentia2", "TPU v4", "TPU v5e", "TPU v6e")
    ]
    assert min(means) < float(errors.value("error", quantity="mean")) < max(means)


def test_what_the_tables_say_of_each_other_holds() -> None:
    """Table 7's reductions follow from its loads; section 5.5 and the abstract have 41 % of end-to-end latency."""
    for name in ("layered-sharegpt", "layered-arxiv"):
        loads = [PAPER.table("7").value("expert_load", workload=name, policy=item) for item in ("chunked", "layered")]
        assert 100 * (1 - float(loads[1]) / float(loads[0])) == pytest.approx(
            PAPER.table("7").value("reduction", workload=name, policy="layered"), abs=0.1
        )
    chunked, layered = PAPER.table("5.5").column("e2e_mean")
    assert 1 - float(layered) / float(chunked) == pytest.approx(0.41, abs=0.01)


def test_the_hardware_named_is_shipped_and_its_limits_are_table_5() -> None:
    specs = load_all([hardware_directory()])
    assert {table.hardware for table in PAPER.tables} - {None} <= set(specs)
    for model, name, ttft_s, tbt_ms in PAPER.table("5").rows:
        slo = specs["nvidia-h100"].slo_for(str(model), str(name))
        assert slo is not None
        assert (slo.ttft_s, slo.tbt_s) == (ttft_s, pytest.approx(float(tbt_ms) / 1e3))


def test_what_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no published figures 'other'; there are: .*layered_prefill"):
        published("other")
    with pytest.raises(ConfigError, match="no table '3'; tables: 1, 2, 5"):
        PAPER.table("3")
    with pytest.raises(ConfigError, match="table 6 has no column 'ttft'; columns: policy, ttft_mean"):
        PAPER.table("6").column("ttft")
    with pytest.raises(ConfigError, match=r"2 rows have \{'model': 'gpt-oss-20b'"):
        PAPER.table("8").value("energy", model="gpt-oss-20b", policy="layered")


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (('title = "A paper"\n', ""), "title: missing"),
        (("[tables.1]", "[table.1]"), "table: unknown key, did you mean 'tables'?"),
        (('caption = "speeds"\n', ""), "tables.1.caption: missing"),
        (("rate_per_s = 2", "rate = 2"), "tables.1.rate: unknown key; allowed: section"),
        (("rate_per_s = 2", 'rate_per_s = "2"'), "tables.1.rate_per_s: want a whole number or a number, not '2'"),
        (('units = ["", "s"]', 'units = [""]'), "tables.1.columns: 2 columns, 1 units"),
        (
            ('["policy", "ttft"]', '["ttft", "ttft"]'),
            "tables.1.columns: 2 columns, 2 units; want a unit for each, no name twice",
        ),
        (('["layered", 1]', '["layered"]'), "tables.1.rows[1]: ['layered']; want 2 values"),
        (('["layered", 1]', "[3, 1]"), "tables.1.rows[1]: 3; want texts or numbers, one kind a column"),
        (('["layered", 1]', '["layered", true]'), "tables.1.rows: want rows of texts and numbers, not"),
        (('section = "3"', "section = 3"), "tables.1.section: want a string, not 3"),
        (("[tables.1]", "[tables.1"), "not a TOML file in UTF-8"),
    ],
)
def test_a_wrong_file_is_named_with_the_place(edit: tuple[str, str], words: str, tmp_path: Path) -> None:
    assert load_published(written(tmp_path)).table("1").value("ttft", policy="layered") == 1
    with pytest.raises(ConfigError, match=re.escape(words)) as error:
        load_published(written(tmp_path, edit))
    assert "paper.toml" in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot be read"):
        load_published(tmp_path / "none.toml")
