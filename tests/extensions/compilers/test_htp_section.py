"""What the suite of graphs shows of cases that Qualcomm's compiler answered for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from reports.served import case_record

from pytest_npubench.extensions.compilers.suites.graphs.htp_graphs import (
    ChunksDetail,
    HtpDetail,
    LayerDetail,
    ProductDetail,
)
from pytest_npubench.extensions.compilers.suites.graphs.report import lines, parts
from pytest_npubench.verdict.case_record import Cases


def profile(bucket: int) -> Mapping[str, Any]:
    graph = LayerDetail(
        context_bytes=1e6 * (100 + bucket / 128),
        weight_bytes=100e6,
        compile_cpu_s=bucket / 64,
        optimize_s=1.5,
        sequence_s=0.5,
        vtcm_s=None,
    )
    detail = HtpDetail(
        bucket=bucket,
        graphs={"prefill": graph, "decode": replace(graph, compile_cpu_s=2.0)},
        need_bytes=2.5e9,
        answer_error=0.003,
        answer_limit=2**-7,
    )
    return case_record("layers", asdict(detail), axes=(("bucket", bucket),))


def test_prompts_in_chunks_have_a_table() -> None:
    chunks = ChunksDetail(
        num_chunks=4,
        per_chunk_graphs=4,
        sharing_graphs=96,
        per_chunk_bytes=400e6,
        sharing_bytes=110e6,
        per_chunk_cpu_s=8.0,
        sharing_cpu_s=5.0,
    )
    detail = asdict(HtpDetail(bucket=1024, chunks=chunks))
    record = case_record("making", detail, axes=(("bucket", 1024),))
    _, tables, _ = parts(Cases.read([profile(1024), record]), ())
    (row,) = (table.rows for table in tables if table is not None and table.caption.startswith("Prompts in chunks"))
    assert row == (("1024", "4", "400.0", "110.0", "72.5%", "4 and 96", "8.0 and 5.0"),)


def test_a_product_with_outliers_has_a_table() -> None:
    product = ProductDetail(
        fp16_bytes=8.4e6,
        int8_bytes=4.3e6,
        fp16_error=0.0004,
        max_min_error=0.126,
        clip_error=0.859,
        shadow_error=0.0095,
        levels_off=1,
    )
    record = case_record("making", asdict(HtpDetail(bucket=256, product=product)), axes=(("bucket", 256),))
    _, tables, _ = parts(Cases.read([profile(256), record]), ())
    (rows,) = (table.rows for table in tables if table is not None and table.caption.startswith("A product with"))
    assert [row[1:] for row in rows] == [("8.4", "0.0004"), ("4.3", "0.13"), ("4.3", "0.86"), ("4.3", "0.0095")]


CASES = Cases.read([profile(512), profile(128)])


def test_lines_go_from_small_to_large() -> None:
    assert not CASES.unread
    head, small, large = lines(CASES)
    assert head.endswith("compiled, not run: buckets up to 512 pass; compiling a layer in each took 14 s of a core")
    assert small == (
        "  bucket 128: 2.50 GB; prefill 101.0 MB a layer in 2.0 s, decode 101.0 MB a layer in 2.0 s; "
        "answers off by 0.003 of 0.0078 allowed"
    )
    assert large.startswith("  bucket 512: 2.50 GB; prefill 104.0 MB a layer in 8.0 s")


def test_the_chart_has_a_line_a_phase_and_the_table_leaves_out_what_nobody_tells() -> None:
    charts, tables, remarks = parts(CASES, ())
    (chart,) = charts
    assert "2.0 s for 128 tokens, 8.0 s for 512" in str(chart)
    table, *others = tables
    assert others == [None, None]
    text = str(table)
    assert "optimizing s" in text
    assert "placing in VTCM s" not in text
    assert not remarks
