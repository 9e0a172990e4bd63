"""Why requests fail, by classes: every way of the real client has one, and no key is in what is kept."""

from __future__ import annotations

import json

import pytest

from pytest_npubench.engines.http.answer import HttpRequest
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.load_run import run_load
from pytest_npubench.suites.server.failures import by_name, class_of, in_words

from .stand_in import TOKEN, StandIn, refuses, streams

FALLING = [json.dumps({"choices": [{"text": "a"}], "usage": {"completion_tokens": count}}) for count in (3, 1, 2)]
BACKWARDS = json.dumps({"choices": [{"text": "a"}], "usage": {"completion_tokens": 1}})
ENDED = json.dumps({"error": {"message": "out of blocks"}})


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        (refuses(400), "HTTP 400"),
        (refuses(404), "HTTP 404"),
        (refuses(429), "HTTP 429"),
        (refuses(500), "HTTP 500"),
        (streams(TOKEN, cut=True), "disconnected"),
        (streams(TOKEN), "stopped before its end"),
        (streams(TOKEN, "{oops"), "malformed stream"),
        (streams(TOKEN, '["a"]'), "malformed stream"),
        (streams(TOKEN, ENDED), "ended by the server with an error"),
        (streams(TOKEN, "[DONE]"), "another number of tokens than asked for"),
        (streams(*FALLING, "[DONE]"), "token counts that contradict the stream"),
        (streams(TOKEN, TOKEN, BACKWARDS, "[DONE]"), "token counts that contradict the stream"),
        (streams(TOKEN, wait_s=5.0), "timed out"),
    ],
)
def test_every_way_to_fail_of_the_real_client_has_its_class(fault, name):
    server = StandIn(fault=fault).start()
    endpoint = Endpoint(url=server.url, model="m", answer_timeout_s=1.0)
    try:
        (answer,) = run_load(endpoint, [HttpRequest(id=0, arrival_s=0.0, prompt=(1,), output_tokens=4)]).answers
    finally:
        server.stop()
    assert class_of(answer.failed) == name, answer.failed


def test_nobody_there_has_its_class():
    server = StandIn().start()
    server.stop()
    request = HttpRequest(id=0, arrival_s=0.0, prompt=(1,), output_tokens=2)
    (answer,) = run_load(Endpoint(url=server.url, model="m"), [request]).answers
    assert class_of(answer.failed) == "no connection"


def test_a_whole_answer_has_no_class_and_an_unknown_reason_is_a_failure():
    assert class_of(None) is None
    assert class_of("a reason of a later version") == "failed"


def test_failures_are_named_by_count_the_most_common_first():
    classes = (None, "disconnected", "HTTP 429", "HTTP 429", None)
    assert by_name(classes) == {"HTTP 429": 2, "disconnected": 1}
    assert in_words(by_name(classes), 5) == "2 of 5: HTTP 429; 1 of 5: disconnected"
    assert in_words(by_name((None, None)), 2) == ""
