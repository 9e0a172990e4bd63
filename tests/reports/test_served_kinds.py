"""The records that the kinds of the scheduling and the server suite leave: the report finds all it looks for.

Each goes from judge through JSON text into the class of its kind and onto the page, so a key that is renamed on one
side alone shows here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from campaign.server import test_open_load_kind
from campaign.server.conftest import server_plan
from campaign.server.test_lateness_and_blocks import http_run
from campaign.serving import test_identical_tokens
from campaign.serving.conftest import KINDS, make_bench, measure, serving_plan  # noqa: F401 - two of them are fixtures

from pytest_npubench.core.case import Case
from pytest_npubench.reports import html
from pytest_npubench.reports.terminal import summary_lines
from pytest_npubench.store.journal import Journal
from pytest_npubench.suites import scheduling, server, shown
from pytest_npubench.verdict.case_record import Cases
from pytest_npubench.verdict.result import JudgedCase, Judgement

from .page import figures, read, table_of

LOAD = "layered-arxiv at 1.3 req/s"


def _records(request: pytest.FixtureRequest, model: str, names: tuple[str, ...]) -> list[Any]:
    plan = serving_plan(model)
    records = []
    for name in names:
        kind, cases, measured = request.getfixturevalue("measure")(plan, name)
        for case in cases:
            records.append(_as_kept(case, kind.judge(case, plan, measured), plan.key))
    return records


def _as_kept(case: Case, judgement: Judgement, campaign: str = "c") -> Any:
    """The case as a journal gives it back."""
    judged = JudgedCase(
        case=case,
        digest="0123456789ab",
        node_id=f"test_{case.kind}",
        device="cuda:0",
        fingerprint=None,
        duration_s=1.0,
        campaign=campaign,
        judgement=judgement,
    )
    return json.loads(json.dumps(judged.to_json()))


def test_every_chart_and_figure_is_found(request: pytest.FixtureRequest) -> None:
    records = _records(request, "qwen3-30b-a3b", tuple(name for name in KINDS if name != "dense_control"))
    page = read(html.render_html(records, Journal(path=Path("j"), sessions=(), records=(), torn=()), shown))
    assert "is not shown" not in page.text
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


@pytest.mark.parametrize("name", KINDS)
def test_a_key_of_another_name_is_told_and_not_shown_half(request: pytest.FixtureRequest, name: str) -> None:
    model = "qwen3-8b" if name == "dense_control" else "qwen3-30b-a3b"
    record = _records(request, model, (name,))[0]
    own = scheduling.SUITE.parts(Cases.read([record]), ())
    key = "rate_per_s" if "rate_per_s" in record["detail"] else "chunk_size_tokens"
    key = key if key in record["detail"] else next(key for key in record["detail"] if key != "held_to")
    record["detail"][f"{key}_of_later"] = record["detail"].pop(key)
    cases = Cases.read([record])
    assert scheduling.SUITE.parts(cases, ()) == ((), (), ()) != own
    (unread,) = set(cases.unread)
    assert unread.startswith(f"{record['id']} is not shown: its record is of another version (")
    assert f"`{key}`" in unread


@pytest.mark.parametrize("damage", ["capacity", "attainment", "a rate", "all rates"])
def test_attainment_without_a_policy_or_a_rate_is_told_and_not_shown_half(
    request: pytest.FixtureRequest, damage: str
) -> None:
    record = _records(request, "qwen3-30b-a3b", ("attainment",))[0]
    detail = record["detail"]
    if damage in detail:
        detail[damage]["other"] = detail[damage].pop("layered")
    elif damage == "a rate":
        detail["rate_per_s"].pop()
    else:
        detail["rate_per_s"], detail["attainment"] = [], {"layered": [], "chunked": []}
    cases = Cases.read([record])
    assert scheduling.SUITE.parts(cases, ()) == ((), (), ())
    assert all("layered: want a capacity, and its shares at each of the rates" in line for line in cases.unread)
    assert cases.unread


def test_identical_tokens_are_a_line_of_the_section() -> None:
    found = test_identical_tokens.judged(test_identical_tokens.plan_in("fp32"), test_identical_tokens.ROUND)
    case = test_identical_tokens.case_of(test_identical_tokens.plan_in("fp32"))
    _, _, remarks = scheduling.SUITE.parts(Cases.read([_as_kept(case, found)]), ())
    assert remarks == (
        "Tokens of 2 requests under layered and hybrid against chunked: identical (layered-arxiv, qwen3-30b-a3b, "
        "1 blocks).",
    )


def test_a_server_s_loads_are_two_tables_and_a_line() -> None:
    plan = server_plan(attainment=0.9)
    (case,) = (plan.case("server", "open_load", axes) for axes in test_open_load_kind.KIND.axes(plan))
    cases = Cases.read([_as_kept(case, test_open_load_kind.judged(plan, http_run(), http_run()))])
    charts, (latencies, loads), (remark,) = server.SUITE.parts(cases, ())
    assert (charts, cases.unread) == ((), [])
    assert latencies is not None
    assert loads is not None
    assert latencies.header == ("load", "latency, ms", "mean", "p50", "p90", "p99", "worst", "n")
    rows = {row[1]: row for row in latencies.rows}
    assert (rows["TTFT"][0], rows["TTFT"][2].split()[0], rows["TTFT"][-1]) == ("short-chats at 100 req/s", "366.7", "6")
    assert (rows["TBT"][-2], rows["E2E"][-2]) == ("300", "")
    cells = dict(loads.rows)
    assert cells["SLO attainment"] == "50.00 %"
    assert cells["failed"] == "2 HTTP 429, 2 disconnected of 8"
    assert cells["tokens counted by"] == "running usage (4), events with text (2)"
    assert cells["limits"] == "TTFT 500 ms, every TBT 400 ms"
    assert cells["loop stall, worst"] == "500 µs"
    (line,) = server.SUITE.lines(cases)
    assert remark == f"S{line[1:]}."
    assert line == (
        "server under short-chats at 100 req/s: TTFT mean 366.7 and p99 400 ms, TBT mean 150 and p99 300 ms, "
        "SLO attainment 50.0%; failed: 2 HTTP 429, 2 disconnected of 8; its client: dispatch lag p99 1 ms, loop stalls "
        "p99 0.495 ms and worst 0.5 ms"
    )


def test_a_server_without_limits_and_answers_says_so() -> None:
    plan = server_plan(slo=None)
    (case,) = (plan.case("server", "open_load", axes) for axes in test_open_load_kind.KIND.axes(plan))
    record = _as_kept(case, test_open_load_kind.judged(plan, http_run(), slo=None))
    _, (_, loads), (remark,) = server.SUITE.parts(Cases.read([record]), ())
    assert loads is not None
    assert dict(loads.rows)["limits"] == "none"
    assert dict(loads.rows)["SLO attainment"] == "–"
    assert "attainment" not in remark
    for name in [name for name in record["detail"]["figures"] if name.startswith("tbt")]:
        del record["detail"]["figures"][name]  # answers of one token
    _, (latencies, _), _ = server.SUITE.parts(Cases.read([record]), ())
    assert latencies is not None
    (tbt,) = (row for row in latencies.rows if row[1] == "TBT")
    assert (tbt[2:6], tbt[-1]) == (("–",) * 4, "0")
    record["detail"]["slo"] = {}  # as it was written before
    assert server.SUITE.parts(Cases.read([record]), ())[1][1] == loads
    assert server.SUITE.parts(Cases.read([{**record, "detail": {}, "metrics": {}}]), ()) == ((), (), ())
