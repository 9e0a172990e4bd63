"""The records that the kinds of the scheduling and the server suite leave: the report finds all it looks for.

Each goes from judge through JSON text into the class of its kind and onto the page, so a key that is renamed on one
side alone shows here.
"""

from __future__ import annotations

from typing import Any

import pytest
from campaign.server import test_open_load_kind
from campaign.server.conftest import server_plan
from campaign.server.test_lateness_and_blocks import http_run
from campaign.serving import test_identical_tokens
from campaign.serving.conftest import KINDS, make_bench, measure, serving_plan  # noqa: F401 - two of them are fixtures
from made_records import judged_record

from pytest_npubench.reports.terminal import summary_lines
from pytest_npubench.suites import scheduling, server, shown
from pytest_npubench.verdict.case_record import Cases

from .page import figures, page_of, table_of

LOAD = "layered-arxiv at 1.3 req/s"


def _records(request: pytest.FixtureRequest, model: str, names: tuple[str, ...]) -> list[Any]:
    plan = serving_plan(model)
    records = []
    for name in names:
        kind, cases, measured = request.getfixturevalue("measure")(plan, name)
        for case in cases:
            records.append(judged_record(case, kind.judge(case, plan, measured), device="cuda:0", campaign=plan.key))
    return records


def test_every_chart_and_figure_is_found(request: pytest.FixtureRequest) -> None:
    records = _records(request, "qwen3-30b-a3b", tuple(name for name in KINDS if name != "dense_control"))
    page = page_of(records)
    assert "is not shown" not in page.text
    assert figures(page).keys() == {
        "Mean TTFT by policy",
        "Mean TBT by policy",
        "SLO attainment by rate, layered-arxiv",
        "Chunk sweep: expert load by chunk",
        "Chunk sweep: measured by chunk",
        "Expert coverage: coverage by batch",
        "Expert coverage: measured by batch",
        "Group sweep, layered-arxiv, r1.3: TTFT mean and worst TBT by groups",
        "Timeline, layered-arxiv, r1.3: layered and chunked by place",
    }
    captions = [caption.text for caption in page.all("caption")]
    (policies,) = (caption for caption in captions if caption.startswith(f"Policies under {LOAD}; SLO: TTFT <= "))
    assert {"Burstiness, layered-arxiv, r1.3", "Energy, layered-arxiv, r1.3"} <= set(captions)
    header, *body = table_of(page, policies)
    assert header == ["figure", *serving_plan().size.policies, "n", "definition"]
    assert len(body) == 15
    latencies = table_of(page, f"Latencies under {LOAD}")
    assert latencies[0][2:6] == ["mean", "p50", "p95", "p99"]
    assert len(latencies) == 1 + 3 * len(serving_plan().size.policies)
    unknown = {row[0] for row in body if "unavailable" in row}
    energies = {"energy per prompt and output token, mJ", "energy per output token, mJ"}
    assert unknown == energies  # these runs have none


def test_the_lines_have_both_models(request: pytest.FixtureRequest) -> None:
    records = _records(request, "qwen3-30b-a3b", ("expert_loads",)) + _records(request, "qwen3-8b", ("dense_control",))
    moe, *where, dense, _, _ = summary_lines(records, shown)
    assert moe.startswith("layered / chunked: expert bytes -")
    assert where == [
        "  SLO attainment 100 % against 100 %, at 1.3 req/s (layered-arxiv, qwen3-30b-a3b,",
        "  geometric mean of 2 blocks)",
    ]
    assert dense.startswith("dense control, layered / chunked: mean TTFT +")


@pytest.mark.parametrize("name", ["attainment", "policy"])
def test_a_key_of_another_name_is_told_and_draws_no_picture(request: pytest.FixtureRequest, name: str) -> None:
    record = _records(request, "qwen3-30b-a3b", (name,))[0]
    pictures = scheduling.SUITE.parts(Cases.read([record]), ())[0]
    record["detail"]["rate_per_s_of_later"] = record["detail"].pop("rate_per_s")
    cases = Cases.read([record])
    charts, _, _ = scheduling.SUITE.parts(cases, ())
    assert not {chart.title for chart in charts} & {chart.title for chart in pictures}
    (unread,) = set(cases.unread)
    assert unread.startswith(f"{record['id']} is not shown: its record is of another version (")
    assert "`rate_per_s`" in unread


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
    _, _, remarks = scheduling.SUITE.parts(Cases.read([judged_record(case, found)]), ())
    assert remarks == (
        "Tokens of 2 requests under layered and hybrid against chunked: identical (layered-arxiv, qwen3-30b-a3b, "
        "1 blocks).",
    )


def test_a_server_s_load_is_its_figures_and_a_line() -> None:
    plan = server_plan(attainment=0.9)
    (case,) = (plan.case("server", "open_load", axes) for axes in test_open_load_kind.KIND.axes(plan))
    cases = Cases.read([judged_record(case, test_open_load_kind.judged(plan, http_run(), http_run()))])
    charts, (latencies, load), (remark,) = server.SUITE.parts(cases, ())
    assert (charts, cases.unread) == ((), [])
    assert latencies is not None
    assert load is not None
    assert latencies.header == ("name", "value", "definition", "samples", "interval", "note")
    rows = {row[0]: row for row in latencies.rows}
    assert (rows["TTFT mean"][1], rows["TTFT mean"][3]) == ("400 ms", "4")
    assert rows["TBT mean"][1] == "150 ms"
    cells = dict(load.rows)
    assert (cells["failures HTTP 429"], cells["failures disconnected"]) == ("2", "2")
    assert (cells["counted by running usage"], cells["counted by events with text"]) == ("4", "2")
    assert (cells["SLO TTFT, ms"], cells["SLO TBT, ms"]) == ("500", "400")
    assert cells["client loop stall worst, ms"] == "0.5"
    (line,) = server.SUITE.lines(cases)
    assert remark == f"S{line[1:]}."
    assert line == (
        "server under short-chats at 100 req/s: TTFT mean 400 and p99 400 ms, TBT mean 150 and p99 300 ms, "
        "SLO attainment 50.0%; failed: 2 HTTP 429, 2 disconnected of 8; its client: dispatch lag p99 1 ms, loop stalls "
        "p99 0.495 ms and worst 0.5 ms"
    )


def test_a_server_without_limits_says_nothing_of_attainment() -> None:
    plan = server_plan(slo=None)
    (case,) = (plan.case("server", "open_load", axes) for axes in test_open_load_kind.KIND.axes(plan))
    record = judged_record(case, test_open_load_kind.judged(plan, http_run(), slo=None))
    _, (_, load), (remark,) = server.SUITE.parts(Cases.read([record]), ())
    assert load is not None
    assert not any(name.startswith("SLO") for name, _ in load.rows)
    assert "attainment" not in remark
    assert server.SUITE.parts(Cases.read([{**record, "detail": {}, "metrics": {}}]), ()) == ((), (), ())
