"""Load on a local stand-in of a server: what comes back, and every way it can fail."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
import urllib.request
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest
from aiohttp import web
from known_answer import KnownAnswer, application

from pytest_npubench.engines.http.answer import SENT_AGAIN, HttpRequest
from pytest_npubench.engines.http.arrived import Unread
from pytest_npubench.engines.http.client import ask
from pytest_npubench.engines.http.connections import Connections
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.load_run import run_load
from pytest_npubench.errors import ConfigError


def _requests(number, *, tokens=4, every_s=0.0, prompt=(1, 2, 3)):
    return [
        HttpRequest(id=index, arrival_s=index * every_s, prompt=prompt, output_tokens=tokens) for index in range(number)
    ]


def _endpoint(server, **changes):
    return Endpoint(**{"url": server.url, "model": "m", **changes})


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize(("merge", "usage"), [(1, "running"), (3, "running"), (3, "last"), (1, "none")])
def test_every_token_is_timed_after_its_server_sent_it(serve, api, merge, usage):
    server = serve(application(KnownAnswer(ttft_s=0.03, itl_s=0.005, merge=merge, usage=usage)))
    prompt = "text" if api == "chat" else (1, 2)
    run = run_load(_endpoint(server, api=api), _requests(3, tokens=6, every_s=0.01, prompt=prompt))
    for answer in run.answers:
        assert answer.failed is None
        assert len(answer.token_times_s) == 6
        # never before the server was due to send it, by its own settings
        last_of_event = [min((k // merge + 1) * merge, 6) - 1 for k in range(6)]
        for k, time_s in enumerate(answer.token_times_s):
            assert time_s >= answer.dispatched_s + 0.03 + last_of_event[k] * 0.005
    assert len(set(run.answers[0].token_times_s)) <= 6 // merge


def test_the_known_answer_server_tells_when_it_sent_what(serve):
    """Not before its time, and not after the client read it: one clock for both."""
    known = KnownAnswer(ttft_s=0.03, itl_s=0.005, merge=2)
    server = serve(application(known))
    requests = [replace(request, prompt=(1, 2, request.id)) for request in _requests(3, tokens=5, every_s=0.002)]
    run = run_load(_endpoint(server), requests)
    with urllib.request.urlopen(server.url.replace("/v1", "/sent")) as response:
        sent = {tuple(record["prompt"]): record for record in json.load(response)}  # in whatever order they came
    assert len(sent) == 3
    for answer in run.answers:
        record = sent[answer.request.prompt]
        assert record["came_s"] >= run.started_s + answer.dispatched_s
        for k, (sent_s, read_s) in enumerate(zip(record["sent_s"], answer.token_times_s, strict=True)):
            assert sent_s >= record["came_s"] + 0.03 + min(k // 2 * 2 + 1, 4) * 0.005
            assert sent_s <= run.started_s + read_s


def test_requests_are_sent_when_due_though_nothing_is_answered(serve):
    came_s = []

    async def never(request):
        came_s.append(time.monotonic())
        await asyncio.sleep(60)

    server = serve(never)
    run = run_load(_endpoint(server, answer_timeout_s=1.0), _requests(5, every_s=0.02))
    assert len(came_s) == 5
    assert came_s[-1] - came_s[0] < 1.0  # all of them before the first one timed out
    assert all(lag >= 0 for lag in run.dispatch_lags_s)
    assert all("timed out" in answer.failed for answer in run.answers)


async def _stream(request, events, *, cut=False):
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for event in events:
        await response.write(f"data: {event}\n\n".encode())
    if cut:
        request.transport.close()
    return response


TOKEN = json.dumps({"choices": [{"text": "a"}]})


@pytest.mark.parametrize(
    ("events", "cut", "words", "num_tokens"),
    [
        ([TOKEN, TOKEN], True, "disconnected", 2),
        ([TOKEN, TOKEN], False, "stopped before its end", 2),
        ([TOKEN, "{oops"], False, "malformed stream", 1),
        ([TOKEN, json.dumps({"error": {"message": "out of blocks"}})], False, "out of blocks", 1),
        ([TOKEN, TOKEN, "[DONE]"], False, "2 tokens came, 4 were asked for", 2),
        (["[DONE]"], False, "0 tokens came", 0),
    ],
)
def test_half_an_answer_is_a_failure_that_keeps_its_tokens(serve, events, cut, words, num_tokens):
    async def handler(request):
        return await _stream(request, events, cut=cut)

    (answer,) = run_load(_endpoint(serve(handler)), _requests(1)).answers
    assert words in answer.failed
    assert len(answer.token_times_s) == num_tokens


STALL_S = 0.3


@pytest.mark.parametrize(
    "deltas",
    [
        [{"content": "ab "}] * 2 + [{"tool_calls": [{"index": 0, "function": {"arguments": "ab "}}]}] * 6,
        [{"reasoning": "ab ", "reasoning_content": "ab "}] * 4 + [{"content": [{"type": "text", "text": "ab "}]}] * 4,
        [{"refusal": "ab "}, {"audio": {"transcript": "ab "}}] * 4,
        [{"content": "ab "}] * 4 + [{"analysis": "ab "}] * 4,
    ],
)
def test_a_stall_in_content_of_any_kind_is_seen(serve, deltas):
    """Eight tokens, an event each, the fifth a third of a second late: none has a time before it was sent."""
    sent_s = []

    async def handler(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for index, delta in enumerate(deltas):
            await asyncio.sleep(STALL_S if index == 4 else 0.01)
            choice = {"index": 0, "delta": delta, "finish_reason": "length" if index == 7 else None}
            sent_s.append(time.monotonic())
            await response.write(b"data: %s\n\n" % json.dumps({"choices": [choice]}).encode())
        last = {"choices": [], "usage": {"completion_tokens": 8}}
        await response.write(b"data: %s\n\ndata: [DONE]\n\n" % json.dumps(last).encode())
        return response

    run = run_load(_endpoint(serve(handler), api="chat"), _requests(1, tokens=8, prompt="x"))
    (answer,) = run.answers
    assert answer.failed is None
    assert all(run.started_s + at_s >= due_s for at_s, due_s in zip(answer.token_times_s, sent_s, strict=True))
    assert list(answer.remarks) == (
        ["text under a key that is not known: analysis"] if "analysis" in str(deltas) else []
    )


@pytest.mark.parametrize(
    ("extra_body", "reason", "failed"),
    [
        ({}, "stop", None),
        ({}, None, None),  # [DONE] alone
        ({}, "length", "2 tokens came, 4 were asked for"),  # merged, and nobody counted them
        ({"ignore_eos": True}, "stop", "2 tokens came, 4 were asked for"),
        ({"min_tokens": 4}, "stop", "2 tokens came, 4 were asked for"),
    ],
)
def test_an_answer_may_end_early_where_nothing_asked_for_its_length(serve, extra_body, reason, failed):
    async def handler(request):
        last = json.dumps({"choices": [{"text": "", "finish_reason": reason}]})
        return await _stream(request, [TOKEN, TOKEN, last, "[DONE]"])

    (answer,) = run_load(_endpoint(serve(handler), extra_body=extra_body), _requests(1)).answers
    assert (answer.failed, len(answer.token_times_s)) == (failed, 2)
    assert list(answer.remarks.values()) == ([] if failed else [2])


ENDED = 'the server ended its answer: "no blocks" .HTTP 200 OK, text/event-stream; charset=utf-8.$'
PAGE = "<html><style>p {}</style><body><h1>Log in</h1>\n<p>first</body></html>"


@pytest.mark.parametrize(
    ("body", "kind", "failed"),
    [
        (PAGE, "text/html", "no stream of events: HTTP 200 OK, text/html; charset=utf-8: Log in first"),
        (PAGE, "text/event-stream", "no stream of events: HTTP 200 OK, text/event-stream.*: Log in first"),
        (
            '{"choices": [{"message": {"content": "ab"}}]}',
            "application/json",
            "no stream .* 200 OK, application/json.*ab",
        ),
        ('{\n "error": "no blocks"\n}\n', "text/event-stream", "no stream .*no blocks"),
        ('{"error": {"message": "no blocks"}}', "application/json", "the server ended its answer: .*no blocks"),
        (f'data: {TOKEN}\n\n{{"error": "no blocks"}}\n', "text/event-stream", ENDED),
        ("error: no blocks\n\ndata: [DONE]\n\n", "text/event-stream", ENDED),
        ("event: error\ndata: no blocks\n\n", "text/event-stream", ENDED),
        (f"data: {TOKEN}\n\ndata: {TOKEN[:9]}", "text/event-stream", "the answer stopped before its end"),
        ("", "text/event-stream", "the answer stopped before its end"),
    ],
)
def test_an_answer_that_is_none_is_told_in_the_servers_own_words(serve, body, kind, failed):
    async def handler(request):
        return web.Response(text=body, content_type=kind)

    (answer,) = run_load(_endpoint(serve(handler)), _requests(1)).answers
    assert re.match(failed, answer.failed), answer.failed


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500])
@pytest.mark.parametrize("kind", ["text/plain", "text/html", "application/json"])
def test_a_refusal_is_named_with_the_servers_words(serve, status, kind):
    """Its status, its type and its first words, of a page those that are read."""
    words = "the model `m` is elsewhere"

    async def handler(request):
        text = f"<style>p {{}}</style><p>{words}</p>" if kind == "text/html" else words
        return web.Response(status=status, text=text, content_type=kind)

    (answer,) = run_load(_endpoint(serve(handler)), _requests(1)).answers
    assert re.fullmatch(rf"HTTP {status} [\w ]+, {kind}; charset=utf-8: {words}", answer.failed)


@pytest.mark.parametrize("status", [429, 500, 400])
def test_a_refused_request_is_not_sent_again(serve, status):
    calls = []

    async def handler(request):
        calls.append(1)
        return web.Response(status=status, headers={"Retry-After": "0"}, text="later")

    (answer,) = run_load(_endpoint(serve(handler)), _requests(1)).answers
    assert len(calls) == 1
    assert f"HTTP {status}" in answer.failed
    assert answer.failed.endswith(": later (Retry-After: 0)")


def test_no_server_is_a_failure_of_each_request():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = run_load(Endpoint(url=f"http://127.0.0.1:{port}/v1", model="m"), _requests(2))
    assert all("no connection" in answer.failed for answer in run.answers)


def test_connections_are_used_again(serve):
    peers = set()

    async def handler(request):
        peers.add(request.transport.get_extra_info("peername"))
        return await _stream(request, [TOKEN] * 4 + ["[DONE]"])

    answers = asyncio.run(_ask_in_turn(_endpoint(serve(handler)), (0.0,) * 3))
    assert [answer.failed for answer in answers] == [None] * 4
    assert len(peers) == 1


async def _ask_in_turn(endpoint, pauses_s):
    """One request at once, and one after each pause, over the same connections."""
    async with Connections(endpoint, time.monotonic) as connections:
        ended = []
        for request, pause_s in zip(_requests(len(pauses_s) + 1), (0.0, *pauses_s), strict=True):
            await asyncio.sleep(pause_s)
            message = connections.message(request)
            ended.append(await ask(connections, endpoint, request, message, now_s=time.monotonic, unread=Unread()))
    return [each.answer() for each in ended]


class Closing:
    """Closes a connection that was idle for idle_s, or whose `unheard`-th request comes; says `header` of it."""

    def __init__(self, *, idle_s=60.0, header="", unheard=None):
        self.num_asked, self.num_connections = 0, 0
        self._idle_s, self._header, self._unheard = idle_s, header, unheard

    async def __call__(self, reader, writer):
        self.num_connections += 1
        with suppress(asyncio.TimeoutError, asyncio.CancelledError, EOFError, ConnectionError):
            for number in count():
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), self._idle_s)
                await reader.readexactly(int(re.search(rb"Content-Length: (\d+)", head)[1]))
                if number == self._unheard:
                    break
                self.num_asked += 1
                body = f"data: {TOKEN}\n\n".encode() * 4 + b"data: [DONE]\n\n"
                writer.write(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n" % (self._header.encode(), len(body)))
                writer.write(body)
        writer.close()


@pytest.mark.parametrize(
    ("server", "pauses_s", "num_connections", "num_again"),
    [
        (Closing(unheard=1), (0.0, 0.0, 0.0), 4, 3),  # each on a used one, then on a fresh one
        (Closing(header="Keep-Alive: timeout=9, max=7\r\n"), (0.0, 1.2), 1, 0),
        (Closing(header="keep-alive: timeout=1\r\n"), (0.0, 0.9, 0.9), 3, 0),
        (Closing(header="Keep-Alive: timeout=0\r\n"), (0.0, 0.0), 3, 0),
        (Closing(), (0.0, 1.2), 2, 0),  # unknown: 1 s
        (Closing(idle_s=0.3), (0.6, 0.28), 3, 0),  # the first one that it closed was idle for 0.3 s
    ],
)
def test_no_request_goes_out_on_a_connection_that_its_server_may_have_closed(
    server, pauses_s, num_connections, num_again
):
    """A request follows each pause; none is lost, and the server hears each once."""
    answers = asyncio.run(_asked(server, pauses_s))
    assert [answer.failed for answer in answers] == [None] * len(answers)
    assert server.num_asked == len(answers)
    assert server.num_connections == num_connections
    assert sum(SENT_AGAIN in answer.remarks for answer in answers) == num_again


def test_a_fresh_connection_that_is_closed_unheard_is_a_failure():
    server = Closing(unheard=0)
    (answer,) = asyncio.run(_asked(server, ()))
    assert (server.num_connections, answer.failed) == (1, "disconnected: the server closed the connection")


async def _asked(server, pauses_s):
    listening = await asyncio.start_server(server, "127.0.0.1", 0)
    endpoint = Endpoint(url=f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1", model="m")
    async with listening:
        answers = await _ask_in_turn(endpoint, pauses_s)
        await asyncio.sleep(0.05)  # the server sees that they are closed
    return answers


def test_the_key_goes_to_the_server_and_nowhere_else(serve, monkeypatch):
    seen = []

    async def handler(request):
        seen.append(request.headers.get("Authorization"))
        return web.Response(status=401, text=f"bad key {seen[-1]}")

    endpoint = _endpoint(serve(handler), api_key_variable="SOME_KEY")
    with pytest.raises(ConfigError, match="SOME_KEY is not set"):
        run_load(endpoint, _requests(1))
    monkeypatch.setenv("SOME_KEY", "secret-value")
    (answer,) = run_load(endpoint, _requests(1)).answers
    assert seen == ["Bearer secret-value"]
    assert "secret-value" not in repr((endpoint, answer))
    assert answer.failed == "HTTP 401 Unauthorized, text/plain; charset=utf-8: bad key Bearer ***"


def test_a_query_and_headers_go_with_every_request_and_are_hidden(serve, monkeypatch):
    seen = []

    async def handler(request):
        seen.append((request.query_string, request.headers["api-key"], request.headers.get("Authorization")))
        return web.Response(status=403, text=f"bad key {seen[-1][1]}")

    monkeypatch.setenv("SOME_KEY", "secret-value")
    endpoint = _endpoint(serve(handler), query="api-version=1", headers=(("api-key", "SOME_KEY"),))
    (answer,) = run_load(endpoint, _requests(1)).answers
    assert seen == [("api-version=1", "secret-value", None)]
    assert answer.failed == "HTTP 403 Forbidden, text/plain; charset=utf-8: bad key ***"


def test_a_certificate_that_nobody_vouches_for_is_refused(serve, tmp_path):
    """TLS to a plain port: the handshake fails, and nothing is sent in the clear."""
    server = serve(application(KnownAnswer(ttft_s=0.0, itl_s=0.0)))
    (answer,) = run_load(_endpoint(server, url=server.url.replace("http:", "https:")), _requests(1)).answers
    assert answer.failed
    with pytest.raises(ConfigError, match="no certificates"):
        run_load(_endpoint(server, ca_file=tmp_path / "none.pem"), _requests(1))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": "localhost:8000"}, "want http:// or https://"),
        ({"url": "http://user:secret@host/v1"}, "no password"),
        ({"model": ""}, "no model named"),
        ({"api": "responses"}, "allowed: completions, chat"),
        ({"idle_timeout_s": 0.0}, "idle_timeout_s is 0.0"),
    ],
)
def test_an_endpoint_that_cannot_be_used_is_named(changes, words):
    with pytest.raises(ConfigError, match=words) as raised:
        Endpoint(**{"url": "http://host/v1", "model": "m", **changes})
    assert "secret" not in str(raised.value)


def test_token_ids_do_not_go_to_the_chat_api():
    with pytest.raises(ConfigError, match="the chat API takes text"):
        run_load(Endpoint(url="http://host/v1", model="m", api="chat"), _requests(1))
