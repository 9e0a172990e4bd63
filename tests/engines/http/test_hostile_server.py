"""A server that means harm costs a request, never the run, its memory or its time; and what we do wrong is not its
fault. The cases are those of hostile.py."""

from __future__ import annotations

import random
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from pytest_npubench.backends.server_address import ServerAddress
from pytest_npubench.backends.server_facts import ask_server
from pytest_npubench.engines.http.answer import HttpAnswer, HttpRequest
from pytest_npubench.engines.http.arrived import Unread
from pytest_npubench.engines.http.client import ask
from pytest_npubench.engines.http.connections import RECEIVE_BYTES, Connections, _socket
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.load_run import _loop_runner, run_load
from pytest_npubench.errors import DeviceUnavailableError

from .hostile import ANSWERS, DONE, JSON, LISTS, STREAM, Answer, Hostile, event, head, said

TOKENS, SHORT_S = 2, 0.4
READ_IN_ALL = 16 * 2**20  # most of it by the system's own buffers
MAX_RSS_MB, MAX_ADDRESSES = 300, 2 * 2**30
WHOLE = said(STREAM, event(), event(), DONE)
KEY = "sk-0123456789-abcdefghij"


@pytest.fixture
def hostile() -> Iterator[Callable[..., Hostile]]:
    """hostile(answer, list of models) serves them until the test ends."""
    servers = []

    def start(answer: Answer, listed: Answer | None = None) -> Hostile:
        servers.append(Hostile(answer, listed))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def _requests(number: int = 1) -> list[HttpRequest]:
    return [HttpRequest(id=index, arrival_s=0.0, prompt=(1, 2), output_tokens=TOKENS) for index in range(number)]


def _answers(server: Hostile, number: int, **changes: object) -> list[HttpAnswer]:
    """One after the other on one session."""
    endpoint = Endpoint(**{"url": server.url, "model": "m", "answer_timeout_s": 20.0, **changes})

    async def asked() -> list[HttpAnswer]:
        async with Connections(endpoint, time.monotonic) as connections:
            ended = [
                await ask(connections, endpoint, one, connections.message(one), now_s=time.monotonic, unread=Unread())
                for one in _requests(number)
            ]
        return [one.answer() for one in ended]

    return _loop_runner()(asked())


def _answer(server: Hostile, **changes: object) -> HttpAnswer:
    (answer,) = _answers(server, 1, **changes)
    return answer


@pytest.fixture(params=["uvloop", "asyncio"])
def event_loop_of(request, monkeypatch) -> None:
    """The client's own."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop")
    else:
        monkeypatch.setitem(sys.modules, "uvloop", None)


@pytest.mark.usefixtures("event_loop_of")
@pytest.mark.parametrize("name", ANSWERS)
def test_a_hostile_answer_is_a_failure_in_one_line(hostile, name):
    """The server would go on for minutes and for most of a gigabyte."""
    harm, words = ANSWERS[name]
    in_time = words.startswith("^timed out") or name == "dripping 500"
    server = hostile(harm)
    answer = _answer(server, answer_timeout_s=SHORT_S if in_time else 20.0)
    assert re.search(words, answer.failed), answer.failed
    assert len(answer.failed) <= 400
    assert answer.failed.isprintable()
    assert len(answer.token_times_s) <= TOKENS
    assert server.asked[0].headers["accept-encoding"] == "identity"
    assert in_time or server.num_bytes < READ_IN_ALL


@pytest.mark.parametrize("name", LISTS)
def test_a_hostile_list_of_models_is_a_reason_in_one_line(hostile, name):
    harm, words = LISTS[name]
    server = hostile(WHOLE, harm)
    with pytest.raises(DeviceUnavailableError, match=words) as raised:
        ask_server(ServerAddress(url=server.url), SHORT_S if words == "timed out" else 20.0)
    assert len(str(raised.value)) <= 400
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("value", ["1" + "0" * 400, "NaN", "1e400", "-1", "true", '"many"', "[4096]"])
def test_a_context_that_is_none_is_unknown(hostile, value):
    listed = said(JSON, b'{"data": [{"id": "m", "owned_by": ["vllm"], "max_model_len": ' + value.encode() + b"}]}")
    (model,) = ask_server(ServerAddress(url=hostile(WHOLE, listed).url), 20.0).models
    assert (model.name, model.context_tokens) == ("m", None)


def test_an_answer_is_whole_at_its_end_though_the_connection_stays_open(hostile):
    answer = _answer(hostile(said(STREAM, event(), event(), DONE, 30.0)))
    assert answer.failed is None
    assert len(answer.token_times_s) == TOKENS


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_named_and_nothing_goes_there(hostile, monkeypatch, status):
    monkeypatch.setenv("MY_KEY", KEY)
    other = hostile(WHOLE)
    place = f"http://user:secret@127.0.0.1:{other.port}/v1/completions?key=secret#secret"
    redirect = said(head(f"{status} Elsewhere", f"Location: {place}"))
    server = hostile(redirect, redirect)
    answer = _answer(server, api_key_variable="MY_KEY")
    goes = f"redirects to http://127.0.0.1:{other.port}/v1/completions"
    assert answer.failed == f"HTTP {status} Elsewhere: {goes}, and no redirect is followed"
    with pytest.raises(DeviceUnavailableError, match=goes) as raised:
        ask_server(ServerAddress(url=server.url, key_variable="MY_KEY"), 20.0)
    assert "secret" not in str(raised.value)
    assert [asked.headers["authorization"] for asked in server.asked] == [f"Bearer {KEY}"] * 2
    assert other.asked == []


@pytest.mark.parametrize(
    ("location", "words"),
    [
        ("/v2/completions", "redirects to /v2/completions,"),
        ("http://[::1", "redirects to an address that is none,"),
        ("http://host:99999/", "redirects to an address that is none,"),
        ("user:secret@host/v1", "redirects to nowhere,"),
        ("https://host/" + "x" * 5000, "redirects to https://host/x"),
        ("\x1b[31m/red", r"redirects to \[31m/red,"),
    ],
)
def test_where_a_redirect_goes_is_shown_without_secrets_and_in_short(hostile, location, words):
    answer = _answer(hostile(said(head("302 Found", f"Location: {location}"))))
    assert re.search(words, answer.failed), answer.failed
    assert "secret" not in answer.failed
    assert len(answer.failed) < 400


def test_no_cookie_is_kept(hostile):
    server = hostile(ANSWERS["cookies"][0])
    found = _answers(server, 2, url=f"http://localhost:{server.port}/v1")  # an address without a name has no cookies
    assert [answer.failed for answer in found] == ["1 tokens came, 2 were asked for"] * 2
    assert all("cookie" not in asked.headers for asked in server.asked)


def test_little_is_read_at_once():
    """However much is sent, and into whatever buffer; Linux holds twice what it is asked for."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ours = _socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", listening.getsockname()))
        with ours:
            ours.connect(listening.getsockname())
            theirs, _ = listening.accept()
            with theirs:
                theirs.setblocking(False)
                theirs.send(b"x" * 2**22)
                time.sleep(0.1)
                assert 0 < len(ours.recv(2**22)) <= 2 * RECEIVE_BYTES


def test_no_proxy_of_the_environment_gets_anything(hostile, monkeypatch):
    proxy, server = hostile(WHOLE), hostile(WHOLE)
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert _answer(server).failed is None
    assert ask_server(ServerAddress(url=server.url), 20.0).model(None).name == "m"
    assert proxy.asked == []


def test_a_damaged_answer_fails_alone(hostile):
    """An honest answer with a byte changed, cut or doubled, 150 times at once: some are still whole, no run ends."""
    draw = random.Random(0)
    whole = b"".join([STREAM, event(), event(usage={"completion_tokens": 2}), DONE])

    def damaged() -> Iterator[bytes]:
        bytes_ = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(bytes_))
            how = draw.randrange(4)
            if how == 0:
                bytes_[at] = draw.randrange(256)
            elif how == 1:
                bytes_[at] ^= 1 << draw.randrange(8)
            elif how == 2:
                del bytes_[at : at + draw.randint(1, 40)]
            else:
                bytes_[at:at] = bytes_[at : at + draw.randint(1, 40)] * draw.randint(1, 20)
        yield bytes(bytes_)

    endpoint = Endpoint(url=hostile(damaged).url, model="m", answer_timeout_s=5.0)
    answers = run_load(endpoint, _requests(150)).answers
    assert len(answers) == 150
    assert any(answer.failed for answer in answers)
    assert all(answer.failed is None or answer.failed.isprintable() for answer in answers)
    assert all(len(answer.token_times_s) <= TOKENS for answer in answers)


LOADS = """
import sys
from resource import *
from pytest_npubench.cli.main import main

setrlimit(RLIMIT_AS, ({addresses}, {addresses}))
asked = ["--workload", sys.argv[1], "--model", "m", "--rate", "1000", "--num-requests", "10", "--timeout", "1"]
for url in sys.argv[2:]:
    status = main(["load", "--url", url, *asked])
    (peak,) = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print("load", status, int(peak) // 1024, flush=True)
"""
FILES = """
import sys
from resource import *
from pytest_npubench.cli.main import main

_, most = getrlimit(RLIMIT_NOFILE)
asked = ["--workload", sys.argv[1], "--rate", "1000", "--num-requests", "80"]
for hard in (most, 64):
    setrlimit(RLIMIT_NOFILE, (64, hard))
    print("load", main(["load", "--url", sys.argv[2], *asked]), getrlimit(RLIMIT_NOFILE)[0], flush=True)
"""
LARGE = [name for name in ANSWERS if name.startswith(("count of 10^", "running count", "endless", "gzip", "cookies"))]
LIST_OF_LISTS = said(JSON, b'{"data": [' + b"[]," * 1_300_000 + b"1]}")


@pytest.fixture
def loads(tmp_path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """loads(script, server...) runs it in a process of its own, with a workload of two tokens an answer."""
    path = tmp_path / "lengths.csv"
    path.write_text("input_tokens,output_tokens\n5,2\n9,2\n", encoding="utf-8")

    def run(script: str, *servers: Hostile) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", script, str(path), *[server.url for server in servers]]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    return run


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="a process's peak is read from /proc")
def test_the_memory_of_a_load_run_is_bounded_under_every_hostile_answer(hostile, loads):
    """All of them one after the other in one process, ten requests at once to each, in less than 300 MB from its start
    to its end. Each server would send 768 MB a request."""
    servers = [hostile(ANSWERS[name][0]) for name in LARGE] + [hostile(WHOLE, LIST_OF_LISTS)]
    run = loads(LOADS.format(addresses=MAX_ADDRESSES), *servers)
    told = [line.split()[1:] for line in run.stdout.splitlines() if line.startswith("load ")]
    assert len(told) == len(servers), run.stderr[-2000:]
    peaks_mb = dict(zip([*LARGE, "a list of lists"], [int(peak) for _, peak in told], strict=True))
    assert {status for status, _ in told} == {"2"}
    assert max(peaks_mb.values()) < MAX_RSS_MB, peaks_mb
    assert "Traceback" not in run.stderr


def test_too_few_files_of_our_own_are_raised_or_named_and_never_the_servers_fault(hostile, loads):
    """80 requests at once under `ulimit -Sn 64` are all answered; under `ulimit -n 64` nothing is measured."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 200:
        pytest.skip(f"{hard} files may be open here (ulimit -Hn), and this test wants 200")
    run = loads(FILES, hostile(said(STREAM, event(), 0.6, event(), DONE)))
    raised, kept = [line.split()[1:] for line in run.stdout.splitlines() if line.startswith("load ")]
    assert "failed     none" in run.stdout
    assert raised[1] == "64"  # as it was before
    assert kept == ["2", "64"]
    assert "the client itself ran out of files: 64 may be open at once (ulimit -Hn)" in run.stderr
    assert "HTTP" not in run.stderr
