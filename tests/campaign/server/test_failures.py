"""Why requests to a server fail, by classes, and prompts of a wanted length that no server has seen before."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_npubench.engines.http.answer import HttpRequest
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.load_run import run_load
from pytest_npubench.suites.server.failures import by_name, class_of, in_words
from pytest_npubench.suites.server.prompts import WORDS, Prompts

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


@given(num=st.integers(1, 300), first=st.integers(0, 5000), width=st.integers(1, 5000))
def test_token_ids_are_as_many_and_in_range(num, first, width):
    found = Prompts(form="tokens", token_ids=(first, first + width), run="a").prompt(num, "0")
    assert len(found) == num
    assert all(first <= token <= first + width for token in found)


@given(num=st.integers(1, 300))
def test_words_are_as_many_and_known(num):
    found = Prompts(form="words", token_ids=(0, 1), run="a").prompt(num, "0")
    assert isinstance(found, str)
    assert len(found.split(" ")) == num
    assert set(found.split(" ")) <= set(WORDS)


def test_another_request_and_another_run_have_another_prompt_from_the_first_tokens_on():
    """Else a server would answer from keys and values that it has kept."""
    runs = [Prompts(form="tokens", token_ids=(100, 999), run=name) for name in ("a", "b")]
    prompts = [run.prompt(64, request) for run in runs for request in ("short@r1/0/1", "short@r1/0/2", "short@r1/1/1")]
    assert len({prompt[:16] for prompt in prompts}) == len(prompts)
    assert runs[0].prompt(64, "x") == runs[0].prompt(64, "x")
