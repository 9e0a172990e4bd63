"""Cases of the server suite: their axes, their verdicts on blocks made up, and what they keep for reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics import Slo
from pytest_npubench.suites import case_kind, suite
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.suites.server.blocks import WatchedBlock, load_block
from pytest_npubench.suites.server.own_figures import OwnFigures
from pytest_npubench.suites.server.plan import server_plans
from pytest_npubench.suites.server.points import LoadPoint
from pytest_npubench.verdict import VerdictKind

from .conftest import LOAD, read_back, server_plan
from .test_lateness_and_blocks import REQUESTS, http_run

KIND = case_kind("open_load")
SPECS = load_all([default_directory()])
SLO = Slo(ttft_s=0.5, tbt_s=0.4)


def case_of(plan):
    (case,) = (plan.case(KIND.suite, KIND.name, axes) for axes in KIND.axes(plan))
    return case


def judged(plan, *runs, slo=SLO, server=OwnFigures()):  # noqa: B008 - a frozen record
    rows = [
        {f"{LoadPoint(load=LOAD).name}/{name}": tuple(values) for name, values in block.columns().items()}
        for block in (
            WatchedBlock(block=load_block(run, REQUESTS, rate_per_s=100.0, slo=slo), server=server) for run in runs
        )
    ]
    return KIND.judge(case_of(plan), plan, Measured(rounds=rows))


def test_the_suite_has_this_kind_and_a_case_for_each_workload_and_rate():
    assert suite("server").kinds == ("answers", "capacity", "open_load")
    (quick,) = server_plans(SPECS["openai-server"], "quick")
    (nightly,) = server_plans(SPECS["openai-server"], "nightly")
    ids = [quick.case("server", "open_load", axes).id for axes in KIND.axes(quick)]
    assert ids == ["openai-server-served-b1-layered-sharegpt-r1", "openai-server-served-b1-layered-sharegpt-r2"]
    assert len(list(KIND.axes(nightly))) == 4
    assert list(server_plans(SPECS["cpu"], "quick")) == []


def test_failed_requests_count_against_attainment_and_are_named():
    """Two of four arrived requests attain: the refused one and the one that was cut off do not."""
    found = judged(server_plan(attainment=0.9), http_run(), http_run())
    assert found.verdict.kind is VerdictKind.FAILED
    assert found.verdict.reason == (
        "requests that miss the SLO 50.00 % > 10.00 %; 2 of 8: HTTP 429; 2 of 8: disconnected"
    )
    assert found.detail.failures == {"HTTP 429": 2, "disconnected": 2}
    assert found.detail.counted_by == {"running usage": 4, "events with text": 2}
    assert judged(server_plan(attainment=0.5), http_run()).verdict.kind is VerdictKind.PASSED


def test_the_servers_own_figures_stand_beside_ours_on_the_page_and_in_the_line():
    """Two blocks, in each of which 4 requests ran; a server that says nothing of itself has no table."""
    own = OwnFigures(queue_mean_s=0.25, running_mean=4.0, running_most=6.0, num_preemptions=2)
    for server, words in ((own, "queue 250 ms a request, 4 running (6 at most), 4 preemptions"), (OwnFigures(), None)):
        judgement = judged(server_plan(), http_run(), http_run(), server=server)
        _, tables, (line,) = suite("server").parts(read_back(case_of(server_plan()), judgement), ())
        rows = dict(row[:2] for table in tables for row in table.rows)
        assert line.partition("; its server: ")[2] == (f"{words}." if words else "")
        assert (rows.get("server queue mean, ms"), rows.get("server preemptions")) == (
            ("250", "4") if words else (None, None)
        )


def test_without_limits_a_case_is_measured_and_not_judged():
    found = judged(server_plan(slo=None), http_run(), slo=None)
    assert found.verdict.kind is VerdictKind.PASSED
    assert found.verdict.reason == "measured; 1 of 4: HTTP 429; 1 of 4: disconnected"
    assert "slo_attainment" not in {metric.name for metric in found.metrics}


def test_a_late_client_makes_the_case_invalid_and_still_shows_its_figures():
    found = judged(server_plan(), http_run(lag_s=0.2))
    assert found.verdict.kind is VerdictKind.INVALID
    assert "the client was late itself: its mean dispatch lag" in found.verdict.reason
    assert found.detail.client.dispatch_lag_p99_s == pytest.approx(0.2)
    assert {metric.name for metric in found.metrics} >= {"ttft_mean_s", "tbt_p99_s", "tbt_worst_s", "e2e_mean_s"}


def test_a_point_that_failed_says_why():
    point = LoadPoint(load=LOAD).name
    with pytest.raises(MeasurementError, match="6 of 6: no connection"):
        KIND.judge(
            case_of(server_plan()),
            server_plan(),
            Measured(failures={point: "6 of 6: no connection"}),
        )


def test_what_changes_a_case_changes_its_digest_and_what_changes_a_limit_its_limits():
    plan = server_plan()
    (axes,) = KIND.axes(plan)
    digests = {
        changed.case("server", "open_load", axes).digest(changed.settings)
        for changed in (
            plan,
            server_plan(api="chat", prompt="words"),
            server_plan(extra_body={}),
            server_plan(max_total_tokens=100),
            server_plan(token_ids=(1, 2)),
            replace(plan, size=replace(plan.size, num_requests=7)),
        )
    }
    assert len(digests) == 6
    same = server_plan(attainment=0.5, slo=(1.0, 1.0), answer_timeout_s=1.0)
    assert same.settings == plan.settings
    assert same.limits == {"attainment": 0.5, "*/*/ttft_s": 1.0, "*/*/tbt_s": 1.0} != plan.limits
