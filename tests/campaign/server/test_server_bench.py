"""The bench on stand-ins of servers: what they are asked, what is kept of the answers, and what fails a point."""

from __future__ import annotations

import errno
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from aiohttp import web

from pytest_npubench.campaign.points import Measured
from pytest_npubench.campaign.rounds import measure_round
from pytest_npubench.engines.http import connections, load_run
from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.serving.metrics import Slo
from pytest_npubench.suites.server.bench import ServerBench
from pytest_npubench.suites.server.blocks import LoadBlock
from pytest_npubench.suites.server.own_figures import OwnFigures
from pytest_npubench.suites.server.points import LoadPoint

from .conftest import LENGTHS, LOAD, NUM_REQUESTS, server_plan
from .stand_in import StandIn, after, refuses, sometimes

POINT = LoadPoint(load=LOAD)


def test_the_server_is_asked_for_the_workloads_lengths_with_new_token_ids(runtime, plan):
    stand_in = StandIn()
    bench = ServerBench(runtime(stand_in), plan)
    assert bench.load((POINT,), (), lambda text: None) == {}
    rows, failed, _ = measure_round([POINT], {POINT.name: 1.0}, bench.sample, 0, lambda: None)
    assert failed == {}
    ((found,),) = Measured(rounds=[rows]).visits(POINT.name, LoadBlock)
    asked = [(len(body["prompt"]), body["max_tokens"]) for body in stand_in.bodies]
    assert sorted(asked) == sorted((record.prompt_tokens, record.output_tokens) for record in found.records)
    assert set(asked) <= set(LENGTHS)
    assert len(asked) == NUM_REQUESTS
    assert all(100 <= token <= 999 for body in stand_in.bodies for token in body["prompt"])
    assert {(body["model"], body["ignore_eos"], body["stream"]) for body in stand_in.bodies} == {("m", True, True)}
    assert all(record.finished for record in found.records)
    assert found.slo == Slo(ttft_s=2.0, tbt_s=1.0)


def test_a_round_has_the_same_arrivals_on_every_machine_and_prompts_of_its_own(runtime, plan):
    stand_in = StandIn()
    opened = runtime(stand_in)
    blocks = [ServerBench(opened, plan).sample(POINT, index).block for index in (0, 0, 1)]
    arrivals = [[record.arrival_s for record in block.records] for block in blocks]
    assert arrivals[0] == arrivals[1] != arrivals[2]
    prompts = [tuple(body["prompt"]) for body in stand_in.bodies]
    assert len(set(prompts)) == len(prompts)


def test_what_the_server_says_of_itself_meanwhile_is_kept_beside_the_block(runtime, plan):
    """A round gives each back by its class; of a server without /metrics there is nothing to keep."""

    async def metrics(request):
        return web.Response(text="vllm:num_requests_running 3\nvllm:num_preemptions_total 7\n")

    for told, wanted in ((True, (OwnFigures(running_mean=3, running_most=3, num_preemptions=0),)), (False, ())):
        stand_in = StandIn()
        if told:
            app = stand_in.application()
            app.router.add_get("/metrics", metrics)
            stand_in.application = lambda app=app: app
        bench = ServerBench(runtime(stand_in), plan)
        rows, _, _ = measure_round([POINT], {POINT.name: 1.0}, bench.sample, 0, lambda: None)
        assert Measured(rounds=[rows]).visits(POINT.name, OwnFigures) == (wanted,)
        assert len(Measured(rounds=[rows]).visits(POINT.name, LoadBlock)[0]) == 1


def test_the_chat_api_is_asked_with_as_many_words(runtime):
    stand_in = StandIn()
    bench = ServerBench(runtime(stand_in), server_plan(api="chat", prompt="words", extra_body={}))
    found = bench.sample(POINT, 0).block
    words = [len(body["messages"][0]["content"].split(" ")) for body in stand_in.bodies]
    assert words == [record.prompt_tokens for record in found.records]
    assert "ignore_eos" not in stand_in.bodies[0]


def test_requests_fit_the_servers_context(runtime, plan):
    """LENGTHS hold 9, 12, 19 and 22 tokens in all: a context of 12 leaves the first two."""
    stand_in = StandIn(entry={"max_model_len": 12})
    ServerBench(runtime(stand_in), plan).sample(POINT, 0)
    assert {len(body["prompt"]) + body["max_tokens"] for body in stand_in.bodies} <= {9, 12}


def test_a_workload_that_does_not_fit_fails_its_point_alone(runtime, plan):
    bench = ServerBench(runtime(StandIn(entry={"max_model_len": 3})), plan)
    failures = bench.load((POINT,), (), lambda text: None)
    assert "max_total_tokens=3" in failures[POINT.name]


def test_failed_requests_stay_in_the_block_by_their_class(runtime, plan):
    bench = ServerBench(runtime(StandIn(fault=sometimes(refuses(429), every=3))), plan)
    found = bench.sample(POINT, 0).block
    assert [record.aborted for record in found.records].count("HTTP 429") == 2
    assert sum(record.finished for record in found.records) == 4


def test_a_server_that_goes_away_keeps_what_it_answered(runtime, plan):
    bench = ServerBench(runtime(StandIn(fault=after(4, refuses(500)))), plan)
    found = bench.sample(POINT, 0).block
    assert [record.aborted for record in found.records] == [None] * 4 + ["HTTP 500"] * 2
    with pytest.raises(MeasurementError, match=r"no request was answered: 6 of 6: HTTP 500 \(HTTP 500 .*: no\)"):
        bench.sample(POINT, 1)


def test_warming_up_ends_a_point_that_nobody_answers(runtime, plan):
    bench = ServerBench(runtime(StandIn(fault=refuses(404, "the model `m` does not exist"))), plan)
    with pytest.raises(MeasurementError, match=r"2 of 2: HTTP 404.*does not exist"):
        bench.warm_up(POINT)


def test_a_key_that_the_server_sends_back_is_in_no_reason(runtime, plan, monkeypatch):
    key = "sk-0123456789-abcdefghij"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    stand_in = StandIn(key=key)
    opened = runtime(stand_in)
    bench = ServerBench(opened, plan)
    monkeypatch.setattr(stand_in, "key", "another")
    with pytest.raises(MeasurementError) as raised:
        bench.sample(POINT, 0)
    assert "HTTP 401" in str(raised.value)
    assert "not authorised: Bearer ***" in str(raised.value)
    shown = repr((raised.value, opened.address, opened.stack(), vars(bench)))
    assert key not in shown
    assert "abcdefgh" not in shown


def test_another_runtime_is_refused(plan):
    with pytest.raises(ConfigError, match="loads servers, not SimpleNamespace"):
        ServerBench(SimpleNamespace(), plan)


def test_collecting_garbage_before_a_block_puts_no_request_off(runtime, plan, monkeypatch):
    """A full collection takes longer than the first request is away."""

    @contextmanager
    def slow_collection():
        time.sleep(1.0)
        yield

    monkeypatch.setattr(load_run, "no_collection", slow_collection)
    found = ServerBench(runtime(StandIn()), plan).sample(POINT, 0).block
    assert found.records[0].arrival_s < 1.0
    assert found.records[0].dispatch_lag_s < 1.0 - found.records[0].arrival_s


def test_a_client_without_files_of_its_own_fails_the_point_and_not_the_server(runtime, plan, monkeypatch):
    """A case without its point is invalid, with these words."""
    bench = ServerBench(runtime(StandIn()), plan)

    def none_left(address):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(connections, "_socket", none_left)
    rows, failed, _ = measure_round([POINT], {POINT.name: 1.0}, bench.sample, 0, lambda: None)
    assert rows == {}
    assert "the client itself ran out of files" in failed[POINT.name]
