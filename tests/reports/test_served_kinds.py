"""The records that the scheduling suite's own kinds leave, on the cost model: the report finds all it looks for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from campaign.serving.conftest import KINDS, make_bench, measure, serving_plan  # noqa: F401 - two of them are fixtures

from pytest_npubench.reports import html
from pytest_npubench.reports.terminal import summary_lines
from pytest_npubench.store.journal import Journal
from pytest_npubench.suites import shown
from pytest_npubench.verdict.result import JudgedCase

from .page import figures, read, table_of

LOAD = "layered-arxiv at 1.3 req/s"


def _records(request: pytest.FixtureRequest, model: str, names: tuple[str, ...]) -> list[Any]:
    plan = serving_plan(model)
    records = []
    for name in names:
        kind, cases, measured = request.getfixturevalue("measure")(plan, name)
        for case in cases:
            judged = JudgedCase(
                case=case,
                digest="0123456789ab",
                node_id=f"test_{name}",
                device="cuda:0",
                fingerprint=None,
                duration_s=1.0,
                campaign=plan.key,
                judgement=kind.judge(case, plan, measured),
            )
            records.append(json.loads(json.dumps(judged.to_json())))
    return records


def test_every_chart_and_figure_is_found(request: pytest.FixtureRequest, small: None) -> None:
    records = _records(request, "qwen3-30b-a3b", tuple(name for name in KINDS if name != "dense_control"))
    page = read(html.render_html(records, Journal(path=Path("j"), sessions=(), records=(), torn=()), shown))
    assert figures(page).keys() == {
        "Mean TTFT by policy",
        "Mean TBT by policy",
        "Expert bytes by chunk size",
        "Prefill time by chunk size",
        "Expert coverage by decode batch",
        f"TTFT and TBT by layer groups, {LOAD}",
        "SLO attainment by rate, layered-arxiv",
        f"Tokens of one request over time, {LOAD}",
    }
    captions = [caption.text for caption in page.all("caption")]
    (policies,) = (caption for caption in captions if caption.startswith(f"Policies under {LOAD}; SLO: TTFT <= "))
    assert any(caption.startswith(f"Bursty arrivals: {LOAD}, CV 1.83, realised ") for caption in captions)
    header, *body = table_of(page, policies)
    assert header == ["figure", *serving_plan().size.policies, "n", "definition"]
    assert len(body) == 15
    latencies = table_of(page, f"Latencies under {LOAD}")
    assert latencies[0][2:6] == ["mean", "p50", "p95", "p99"]
    assert len(latencies) == 1 + 3 * len(serving_plan().size.policies) + 6  # and six of the paper's
    unknown = {row[0] for row in body if "unavailable" in row}
    assert unknown == {"energy per prompt and output token, mJ", "energy per output token, mJ"}


def test_the_lines_have_both_models(request: pytest.FixtureRequest) -> None:
    records = _records(request, "qwen3-30b-a3b", ("expert_loads",)) + _records(request, "qwen3-8b", ("dense_control",))
    moe, where, dense, _, _ = summary_lines(records, shown)
    assert moe.startswith("layered / chunked: expert bytes -")
    assert where == "  SLO attainment 100 % against 100 %, at 1.3 req/s (layered-arxiv, qwen3-30b-a3b, 2 blocks)"
    assert dense.startswith("dense control, layered / chunked: mean TTFT +")
