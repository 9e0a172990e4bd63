"""Blocks as columns and back, their figures against sums done by hand, and when a client was late itself."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.served_block import pooled
from pytest_npubench.campaign.served_metrics import reported
from pytest_npubench.engines.http.answer import PASSED_OVER, UNKNOWN_TEXT, HttpAnswer, HttpRequest
from pytest_npubench.engines.http.load_run import HttpRun
from pytest_npubench.engines.http.token_times import EVENTS, RUNNING
from pytest_npubench.errors import MeasurementError
from pytest_npubench.serving.metrics import Slo
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.suites.server.blocks import IN_ONE_PIECE, LoadBlock, load_block
from pytest_npubench.suites.server.figures import seen_from_outside
from pytest_npubench.suites.server.lateness import dispatch_lag_p99_s, why_late
from pytest_npubench.suites.server.points import LoadPoint

from .conftest import LOAD

SLO = Slo(ttft_s=0.5, tbt_s=0.2)
REQUESTS = tuple(
    ServingRequest(id=index, arrival_s=float(index), prompt_tokens=7 + index, output_tokens=3) for index in range(4)
)
ANSWERS = (  # in time; a late gap; refused; gone after its first token
    ((0.4, 0.5, 0.6), None, RUNNING),
    ((1.4, 1.7, 1.8), None, RUNNING),
    ((), "HTTP 429 Too Many Requests: later", ""),
    ((3.3, 3.9), "disconnected: ServerDisconnectedError", EVENTS),
)


def http_run(
    *,
    lag_s: float | tuple[float, ...] = 0.001,
    stalls_s: tuple[float, ...] = (0.0, 0.0005),
    remarks: dict[str, int] | None = None,
) -> HttpRun:
    lags_s = lag_s if isinstance(lag_s, tuple) else (lag_s,) * len(REQUESTS)
    answers = tuple(
        HttpAnswer(
            request=HttpRequest(
                id=request.id, arrival_s=request.arrival_s, prompt=(1,), output_tokens=request.output_tokens
            ),
            dispatched_s=request.arrival_s + own_s,
            token_times_s=times_s,
            failed=failed,
            counted_by=counted_by,
            remarks={} if failed else remarks or {},
        )
        for request, own_s, (times_s, failed, counted_by) in zip(REQUESTS, lags_s, ANSWERS, strict=True)
    )
    return HttpRun(answers=answers, loop_stalls_s=stalls_s, started_s=0.0, ended_s=4.0)


def block(slo: Slo | None = SLO, **run: object) -> LoadBlock:
    made = load_block(http_run(**run), REQUESTS, rate_per_s=1.0, slo=slo)
    (found,) = LoadBlock.of_columns(json.loads(json.dumps(made.columns())))
    assert found == made
    return found


def values(found: LoadBlock) -> dict[str, float | None]:
    return {metric.name: metric.value for metric in seen_from_outside(found)}


def test_a_block_comes_back_from_its_columns():
    found = block(remarks={f"{UNKNOWN_TEXT}: analysis": 1, PASSED_OVER: 3})
    assert [record.token_times_s for record in found.records] == [times_s for times_s, _, _ in ANSWERS]
    assert [record.aborted for record in found.records] == [None, None, "HTTP 429", "disconnected"]
    assert [record.prompt_tokens for record in found.records] == [7, 8, 9, 10]
    assert [record.scheduled_s for record in found.records] == [None] * 4
    assert found.num_counted_by == {RUNNING: 2, EVENTS: 1}
    assert found.num_remarked == {UNKNOWN_TEXT: 2, PASSED_OVER: 2}
    assert pooled([found, found]).num_remarked == {UNKNOWN_TEXT: 4, PASSED_OVER: 4}
    assert (found.slo, found.ended_s, found.rate_per_s) == (SLO, 4.0, 1.0)
    assert all(value >= 0 for values in found.columns().values() for value in values)


def test_a_column_that_would_be_empty_is_left_out():
    """The journal's samples are never empty: a block whose requests all failed has no token times."""
    run = http_run()
    gone = tuple(replace(answer, token_times_s=(), failed="no connection: x") for answer in run.answers)
    columns = load_block(replace(run, answers=gone), REQUESTS, rate_per_s=1.0, slo=None).columns()
    assert all(columns.values())
    assert "request.token_times_s" not in columns
    assert [record.num_tokens for record in LoadBlock.of_columns(columns)[0].records] == [0, 0, 0, 0]


def test_figures_are_those_done_by_hand():
    found = values(block())
    assert found["slo_attainment"] == 1 / 4  # failed requests arrived too
    assert found["ttft_attainment"] == 3 / 4  # a first token in time is in time, whatever came after
    assert found["ttft_mean_s"] == pytest.approx((0.4 + 0.4) / 2)  # the last one failed after its second token
    assert found["tbt_mean_s"] == pytest.approx((0.1 + 0.1 + 0.3 + 0.1) / 4)
    assert found["tbt_worst_s"] == pytest.approx(0.3)
    assert found["e2e_mean_s"] == pytest.approx((0.6 + 0.8) / 2)
    assert found["output_tokens_per_s"] == pytest.approx(8 / 4.0)
    assert found["dispatch_lag_p99_s"] == pytest.approx(0.001)
    assert found["loop_stall_worst_s"] == 0.0005
    notes = {metric.name: metric.note for metric in seen_from_outside(block()) if "1 failed after" in metric.note}
    assert {"ttft_mean_s", "ttft_p99_s", "tbt_mean_s", "tbt_p99_s"} <= set(notes)
    assert (block().ttfts_s, len(block().gaps_s)) == (pytest.approx([0.4, 0.4]), 4)
    assert not any("expert" in name or "kv_bytes" in name or "queue_delay" in name for name in found)


def test_without_limits_there_is_no_attainment():
    assert values(block(slo=None))["slo_attainment"] is None


def test_two_blocks_are_one_run_and_each_is_a_sample():
    metrics = {metric.name: metric for metric in reported([block(), block()], seen_from_outside)[0]}
    assert metrics["slo_attainment"].value == 1 / 4
    assert metrics["slo_attainment"].samples == (1 / 4, 1 / 4)
    assert metrics["ttft_mean_s"].gate == "ratio"
    assert {metrics[name].gate for name in ("tbt_worst_s", "dispatch_lag_p99_s", "loop_stall_p99_s")} == {"none"}
    whole = pooled([block(), block()])
    assert len(whole.records) == 8
    assert whole.records[4].arrival_s == whole.records[0].arrival_s + 5.0
    assert whole.failures == {"HTTP 429": 2, "disconnected": 2}


def test_rounds_of_a_point_are_its_blocks_and_another_points_are_not():
    point = LoadPoint(load=LOAD)
    columns = block().columns()
    row = {f"{name}/{column}": tuple(own) for name in (point.name, point.name + "5") for column, own in columns.items()}
    assert Measured(rounds=[row, row, {}]).visits(point.name, LoadBlock) == ((block(),), (block(),))
    with pytest.raises(MeasurementError, match="no round has samples of it"):
        Measured(rounds=[{}]).visits(point.name, LoadBlock)
    with pytest.raises(MeasurementError, match="HTTP 404"):
        Measured(rounds=[row], failures={point.name: "4 of 4: HTTP 404"}).visits(point.name, LoadBlock)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"lag_s": 0.0399}, None),  # mean TTFT 400 ms
        ({"lag_s": 0.0402}, "mean dispatch lag of 40.2 ms is over 10% of the mean TTFT, 400 ms"),
        ({"lag_s": (0.0, 0.039, 0.0, 0.0)}, None),  # TTFT at p99 400 ms
        ({"lag_s": (0.0, 0.041, 0.0, 0.0)}, "dispatch lag at p99 of 41 ms is over 10% of the TTFT at p99, 400 ms"),
        ({"stalls_s": (0.0305,) * 9}, None),  # TBT at p99 300 ms, and 1 ms that timers are rounded up by
        ({"stalls_s": (0.0315,) * 9}, "stalls at p99 of 30.5 ms is over 10% of the TBT at p99, 300 ms"),
        ({"stalls_s": (0.0,) * 999 + (0.21,)}, "stood still for 210 ms, longer than the limit of 200 ms on a TBT"),
    ],
)
def test_a_client_that_was_late_says_so(changes, words):
    found = why_late(block(**changes))
    assert found is None if words is None else words in str(found)


@pytest.mark.parametrize(
    ("times_s", "stall_s", "words"),
    [
        ((0.4, 0.4, 0.4), 0.03, None),  # in one piece: of a TTFT of 400 ms
        ((0.4, 0.401, 0.4018), 0.03, None),
        ((0.4, 0.4, 0.4), 0.045, "stalls at p99 of 44 ms is over 10% of the mean TTFT, 400 ms"),
        ((0.4, *(0.4,) * 200, 0.7), 0.03, None),  # in bursts, the gap between them 300 ms
        ((0.4, 0.4012, 0.4024, 0.4036), 0.03, "stalls at p99 of 29 ms is over 10% of the TBT at p99, 1.2 ms"),
    ],
)
def test_a_stall_is_held_against_what_it_could_change(times_s, stall_s, words):
    run = http_run(stalls_s=(stall_s,) * 9)
    answers = [
        replace(answer, failed=None, token_times_s=tuple(at_s + answer.request.arrival_s for at_s in times_s))
        for answer in run.answers
    ]
    found = load_block(replace(run, answers=tuple(answers)), REQUESTS, rate_per_s=1.0, slo=None)
    assert why_late(found) is None if words is None else words in str(why_late(found))
    assert (IN_ONE_PIECE in found.num_remarked) is (times_s[-1] - times_s[0] <= 0.002)


def test_an_answer_that_ended_early_is_whole_at_its_own_length():
    run = http_run()
    short = replace(run.answers[0], token_times_s=(0.4, 0.5))
    found = load_block(replace(run, answers=(short, *run.answers[1:])), REQUESTS, rate_per_s=1.0, slo=SLO)
    assert [record.finished for record in found.records] == [True, True, False, False]


def test_the_lag_at_p99_is_the_summarys():
    assert dispatch_lag_p99_s(block(lag_s=0.02)) == pytest.approx(values(block(lag_s=0.02))["dispatch_lag_p99_s"])
