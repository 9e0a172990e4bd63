"""A load from several processes: the schedule of one, answers in its order, and a process that is lost is named."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request

import pytest
from known_answer import KnownAnswer, application

from pytest_npubench.engines.http import shared_load
from pytest_npubench.engines.http.answer import HttpRequest
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.shared_load import run_shared_load
from pytest_npubench.errors import ConfigError
from pytest_npubench.suites.server.failures import class_of


def _requests(number, *, every_s=0.02, tokens=3):
    """Each tells which it is by its prompt."""
    return [
        HttpRequest(id=index, arrival_s=index * every_s, prompt=(index,), output_tokens=tokens)
        for index in range(number)
    ]


def test_all_are_sent_once_when_due_and_come_back_in_order(serve, monkeypatch):
    """Against the server's own clock, which is the machine's."""
    monkeypatch.setattr(shared_load, "BATCH", 2)
    server = serve(application(KnownAnswer(ttft_s=0.03, itl_s=0.01)))
    requests = _requests(11)
    run = run_shared_load(Endpoint(url=server.url, model="m"), requests, 3)
    with urllib.request.urlopen(server.url.replace("/v1", "/sent")) as response:
        sent = {record["prompt"][0]: record for record in json.load(response)}
    assert sorted(sent) == list(range(11))
    assert [answer.request for answer in run.answers] == requests
    assert [answer.failed for answer in run.answers] == [None] * 11
    assert (run.lost, min(run.dispatch_lags_s) >= 0) == ((), True)
    for answer in run.answers:
        record = sent[answer.request.id]
        assert record["came_s"] >= run.started_s + answer.dispatched_s
        for sent_s, read_s in zip(record["sent_s"], answer.token_times_s, strict=True):
            assert sent_s <= run.started_s + read_s
    assert run.ended_s >= max(answer.token_times_s[-1] for answer in run.answers)
    assert list(run.loop_stalls_s) == sorted(run.loop_stalls_s)


def test_a_process_that_is_lost_takes_its_requests_along_and_no_others(serve, monkeypatch):
    children = []

    def kept(*arguments, **keywords):
        children.append(shared_load_hosted(*arguments, **keywords))
        return children[-1]

    shared_load_hosted = shared_load.hosted
    monkeypatch.setattr(shared_load, "hosted", kept)

    async def kills_once(request):
        if children[1].is_open:
            os.kill(children[1].pid, signal.SIGKILL)
            while children[1].is_open:
                time.sleep(0.01)
        return await answers(request)

    known = application(KnownAnswer(ttft_s=0.0, itl_s=0.0))
    (answers,) = {route.handler for route in known.router.routes() if route.resource.canonical == "/v1/completions"}
    wrapped = application(KnownAnswer(ttft_s=0.0, itl_s=0.0))
    wrapped.router.add_post("/killing/completions", kills_once)
    server = serve(wrapped)
    endpoint = Endpoint(url=server.url.replace("/v1", "/killing"), model="m")
    run = run_shared_load(endpoint, _requests(6, every_s=0.3), 2)
    (lost,) = run.lost
    assert "process 2 of 2 of the client" in lost
    assert [answer.failed is None for answer in run.answers] == [True, False] * 3
    for answer in run.answers[1::2]:
        assert answer.failed == f"lost with {lost}"
        assert class_of(answer.failed) == "lost with a process of the client"
        assert answer.dispatched_s is None
    assert len(run.dispatch_lags_s) == 3


def test_what_no_process_can_do_is_raised_as_with_one(monkeypatch):
    monkeypatch.delenv("SOME_KEY", raising=False)
    endpoint = Endpoint(url="http://127.0.0.1:1/v1", model="m", api_key_variable="SOME_KEY")
    with pytest.raises(ConfigError, match="SOME_KEY is not set"):
        run_shared_load(endpoint, _requests(2), 2)
