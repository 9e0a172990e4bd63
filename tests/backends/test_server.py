"""A server as a device: what it says of itself, what a key holds of it, and every reason not to find it."""

from __future__ import annotations

import errno
import re
import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

pytest.importorskip("aiohttp", reason="aiohttp is not installed: pip install pytest-npubench[http]")

from aiohttp import web
from campaign.server.stand_in import StandIn
from engines.http.conftest import Server

from pytest_npubench.backends import backend, server_facts
from pytest_npubench.backends.server_address import ServerAddress, address_of
from pytest_npubench.backends.server_facts import ServedModel, ServerFacts, ask_server
from pytest_npubench.engines.http.answer import HttpRequest
from pytest_npubench.engines.http.endpoint import Endpoint
from pytest_npubench.engines.http.load_run import run_load
from pytest_npubench.errors import AccessRefusedError, ConfigError, DeviceUnavailableError, MeasurementError

KEY = "sk-0123456789-abcdefghij"


@pytest.fixture
def start(monkeypatch):
    """start(stand_in or application) serves it at the address of the environment."""
    servers = []

    def started(served) -> Server:
        servers.append(Server(served) if isinstance(served, web.Application) else served.start())
        monkeypatch.setenv("NPUBENCH_SERVER_URL", servers[-1].url)
        return servers[-1]

    yield started
    for server in servers:
        server.stop()


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """No server and no key but what a test sets."""
    for name in ("URL", "MODEL", "KEY_VARIABLE", "CA_FILE"):
        monkeypatch.delenv(f"NPUBENCH_SERVER_{name}", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def probe():
    return backend("server").probe(10.0)


def opened():
    return backend("server").open(probe().devices, None)


def test_nothing_set_says_what_to_set():
    assert probe().devices == ()
    assert "set NPUBENCH_SERVER_URL" in probe().reason


def test_the_only_model_served_is_the_device(start):
    start(StandIn(models=("qwen3-8b",)))
    (device,) = probe().devices
    assert (device.family, device.ordinal, device.name) == ("server", 0, "qwen3-8b")
    runtime = opened()
    assert runtime.model == ServedModel(name="qwen3-8b", context_tokens=4096)
    assert runtime.stack().runtime == "vllm 0.32.0"
    assert runtime.stack().device_class.startswith("server on this machine, ")
    assert runtime.num_process_compiles == 0
    assert backend("server").telemetry((device,)) is None


@pytest.mark.parametrize(
    ("changes", "software"),
    [
        ({}, "vllm 0.32.0"),
        ({"version": None}, "vllm"),
        ({"version": {"version": 7}}, "vllm"),
        ({"entry": {}, "version": None, "header": "llama.cpp"}, "llama.cpp"),
        ({"entry": {"owned_by": "user-secret"}, "header": "gateway"}, "gateway 0.32.0"),
        (
            {"entry": {"owned_by": "sglang"}, "version_path": "/get_server_info", "version": {"version": "0.5.1"}},
            "sglang 0.5.1",
        ),
        ({"entry": {"owned_by": "llamacpp"}, "version_path": "/props", "version": {"build_info": "b1"}}, "llamacpp b1"),
    ],
)
def test_software_and_version_as_servers_tell_them(start, changes, software):
    start(StandIn(**changes))
    assert opened().stack().runtime == software


@pytest.mark.parametrize(
    ("entry", "tokens"),
    [({"max_model_len": 4096}, 4096), ({"meta": {"n_ctx": 512, "n_ctx_train": 8192}}, 512), ({"meta": 3}, None)],
)
def test_the_context_as_servers_tell_it(start, entry, tokens):
    start(StandIn(entry=entry))
    assert opened().model.context_tokens == tokens


def test_an_upgraded_server_differs_in_its_runtime_alone(start):
    stand_in = StandIn()
    start(stand_in)
    before = opened().stack()
    stand_in.version = {"version": "0.33.0"}
    after = opened().stack()
    changed = [name for name in before.__slots__ if getattr(before, name) != getattr(after, name)]
    assert (changed, after.runtime) == (["runtime"], "vllm 0.33.0")


def test_other_hosts_are_other_devices_that_nobody_can_name():
    addresses = [ServerAddress(url=f"http://{host}:8000/v1") for host in ("gpu-7.example", "gpu-8.example")]
    assert len({address.host_digest for address in addresses}) == 2
    assert ServerAddress(url="https://GPU-7.example/v1").host_digest == addresses[0].host_digest
    assert not any(address.is_local for address in addresses)
    for url in ("http://localhost:1/v1", "http://127.0.0.2/v1", "http://[::1]:9/v1"):
        assert ServerAddress(url=url).is_local


def test_of_several_models_one_is_named_and_need_not_be_listed(start, monkeypatch):
    start(StandIn(models=("one", "two")))
    (device,) = probe().devices  # not a reason to skip: somebody asked for a model
    with pytest.raises(DeviceUnavailableError, match="serves 2 models; set NPUBENCH_SERVER_MODEL to one of one, two"):
        backend("server").open((device,), None)
    for name, is_listed in (("alias", False), ("two", True)):
        monkeypatch.setenv("NPUBENCH_SERVER_MODEL", name)
        model = opened().model
        assert (model.name, model.is_listed) == (name, is_listed)


def test_of_many_models_ten_are_named():
    facts = ServerFacts(models=tuple(ServedModel(name=f"m{i}", context_tokens=None) for i in range(60)), software=None)
    with pytest.raises(DeviceUnavailableError, match="m9 and 50 more"):
        facts.model(None)
    with pytest.raises(DeviceUnavailableError, match="lists none; set NPUBENCH_SERVER_MODEL"):
        ServerFacts(models=(), software=None).model(None)


def test_the_key_is_sent_and_is_in_no_message(start, monkeypatch):
    stand_in = StandIn(key=KEY)
    start(stand_in)
    assert "does not take a client without a key (HTTP 401)" in probe().reason
    monkeypatch.setenv("MY_KEY", KEY + "x")
    monkeypatch.setenv("NPUBENCH_SERVER_KEY_VARIABLE", "MY_KEY")
    reason = probe().reason
    assert "does not take the key in MY_KEY" in reason
    assert KEY not in reason
    monkeypatch.setenv("MY_KEY", KEY)
    runtime = opened()
    assert stand_in.headers[-1] == f"Bearer {KEY}"
    assert KEY not in repr((runtime.address, runtime.stack(), runtime.model))


def test_the_usual_variable_holds_the_key_unless_another_is_named(start, monkeypatch):
    stand_in = StandIn()
    start(stand_in)
    probe()
    assert stand_in.headers[-1] is None
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    probe()
    assert stand_in.headers[-1] == f"Bearer {KEY}"
    monkeypatch.setenv("NPUBENCH_SERVER_KEY_VARIABLE", "NOT_THERE")
    assert "NPUBENCH_SERVER_KEY_VARIABLE: NOT_THERE is not set" in probe().reason


@pytest.mark.parametrize("key", ["two words", "line\nbreak", "schl\u00fcssel"])
def test_a_key_that_no_header_can_carry_is_named_by_its_variable(start, monkeypatch, key):
    start(StandIn())
    monkeypatch.setenv("OPENAI_API_KEY", key)
    assert "the API key in OPENAI_API_KEY has a space or a sign" in probe().reason
    assert key not in probe().reason


@pytest.mark.parametrize(
    "url",
    ["localhost:8000", "ftp://host/v1", "http://", "http://host:99999/v1", "http://[::1/v1", "http://a b/v1"],
)
def test_an_address_that_is_none_is_a_reason(monkeypatch, url):
    monkeypatch.setenv("NPUBENCH_SERVER_URL", url)
    assert "NPUBENCH_SERVER_URL (--url of load): a server's address: want http:// or https://" in probe().reason


@pytest.mark.parametrize(
    "url",
    [
        "user:secret@host/v1",
        "secret@host/v1",
        "h/v1?key=secret",
        "h/v1#secret",
        "h/v1;password=secret",
        "h/api_key=secret",
    ],
)
def test_a_password_in_the_address_is_refused_and_not_shown(url):
    with pytest.raises(ConfigError, match="carries no password") as raised:
        address_of({"NPUBENCH_SERVER_URL": f"http://{url}"})
    assert "secret" not in str(raised.value)


def test_nobody_at_the_address_is_a_reason(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("NPUBENCH_SERVER_URL", f"http://127.0.0.1:{free.getsockname()[1]}/v1")
    assert "no server answers at http://127.0.0.1" in probe().reason
    assert "refused" in probe().reason


def test_too_few_files_of_our_own_are_a_reason_of_ours(start, monkeypatch):
    start(StandIn())

    def none_left(*arguments: object) -> socket.socket:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(server_facts.socket, "socket", none_left)
    assert "no server is asked: this process may open no more files" in probe().reason


def test_a_server_that_never_answers_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = ServerAddress(url=f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        with pytest.raises(DeviceUnavailableError, match="timed out"):
            ask_server(address, 0.2)


def test_a_server_that_drips_is_given_up():
    """Each byte would come in time."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        over = threading.Event()

        def drip():
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while not over.wait(0.02):
                    try:
                        connection.sendall(b" ")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        address = ServerAddress(url=f"http://127.0.0.1:{listening.getsockname()[1]}/v1")
        with pytest.raises(DeviceUnavailableError, match="timed out"):
            ask_server(address, 0.3)
        over.set()
        thread.join()


def _answering(response) -> web.Application:
    app = web.Application()

    async def models(request):
        return response()

    app.router.add_get("/v1/models", models)
    return app


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (lambda: web.Response(status=404), "lists no models: HTTP 404"),
        (lambda: web.Response(status=500, text="no such route"), "lists no models: HTTP 500 of /models: no such route"),
        (lambda: web.Response(status=401), "does not take a client without a key (HTTP 401)"),
        (lambda: web.Response(status=403), "does not take a client without a key (HTTP 403)"),
        (
            lambda: web.Response(status=302, headers={"Location": "http://elsewhere.example/?key=1"}),
            "/models redirects to http://elsewhere.example/ (HTTP 302)",
        ),
        (lambda: web.Response(text="<html>"), "/models holds no list"),
        (lambda: web.json_response([1]), "/models holds no list"),
        (lambda: web.Response(text="[" * 200_000), "/models holds no list"),
        (lambda: web.json_response({"data": {}}), "/models holds no list"),
    ],
)
def test_an_address_of_something_else_is_a_reason_unless_a_model_is_named(start, monkeypatch, response, words):
    start(_answering(response))
    assert words in probe().reason
    monkeypatch.setenv("NPUBENCH_SERVER_MODEL", "m")
    assert [device.name for device in probe().devices] == ([] if "redirects" in words else ["m"])


def test_a_server_that_is_loading_is_told_in_its_own_words_though_a_model_is_named(start, monkeypatch):
    monkeypatch.setenv("NPUBENCH_SERVER_MODEL", "m")
    start(_answering(lambda: web.Response(status=503, text='{"error": {"message": "Loading model"}}')))
    assert re.search("HTTP 503 of /models: .*Loading model", probe().reason)


def test_entries_that_are_no_models_are_left_out(start):
    start(_answering(lambda: web.json_response({"data": [3, {"id": 4}, {"id": "m"}]})))
    assert opened().model == ServedModel(name="m", context_tokens=None)


def test_refused_access_is_an_error_of_its_own(start):
    server = start(StandIn(key=KEY))
    with pytest.raises(AccessRefusedError):
        ask_server(ServerAddress(url=server.url), 5.0)


def test_a_server_without_the_certificate_of_anybody_is_not_asked(start, tmp_path):
    server = start(StandIn())
    with pytest.raises(DeviceUnavailableError, match="no server answers"):
        ask_server(ServerAddress(url=server.url.replace("http:", "https:")), 5.0)
    missing = ServerAddress(url=server.url.replace("http:", "https:"), ca_file=Path(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match="no certificates to trust"):
        ask_server(missing, 5.0)


@pytest.fixture
def certificate(tmp_path) -> Path:
    """A certificate for 127.0.0.1 that nobody vouches for, with its key beside it."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate can be made")
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "own.pem")]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, *files]
    subprocess.run(command, check=True, capture_output=True)
    return tmp_path / "own.pem"


TRUSTED = r"; --ca-file PATH \(NPUBENCH_SERVER_CA_FILE\) trusts"


def test_a_certificate_of_ones_own_is_trusted_where_it_is_named_and_the_systems_still_are(certificate):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    server = Server(StandIn().application(), tls=context)
    request = HttpRequest(id=0, arrival_s=0.0, prompt=(1, 2), output_tokens=2)
    try:
        with pytest.raises(DeviceUnavailableError, match=f"(?i)self.signed certificate.*{TRUSTED}"):
            ask_server(ServerAddress(url=server.url), 5.0)
        facts = ask_server(ServerAddress(url=server.url, ca_file=certificate), 5.0)
        (refused,) = run_load(Endpoint(url=server.url, model="m"), [request]).answers
        (answered,) = run_load(Endpoint(url=server.url, model="m", ca_file=certificate), [request]).answers
    finally:
        server.stop()
    assert facts.model(None).name == "m"
    assert refused.failed
    assert re.search(f"(?i)self.signed certificate.*{TRUSTED}", refused.failed)
    assert answered.failed is None
    systems = ssl.create_default_context().cert_store_stats()["x509"]
    for context in (
        ServerAddress(url=server.url, ca_file=certificate).tls(),
        Endpoint(url=server.url, model="m", ca_file=certificate).tls(),
    ):
        assert context.cert_store_stats()["x509"] == systems + 1


def test_callables_do_not_run_on_a_server(start):
    start(StandIn())
    runtime = opened()
    with pytest.raises(DeviceUnavailableError, match="takes requests"):
        runtime.compile("product", lambda: None)
    with pytest.raises(MeasurementError, match="loads one"):
        runtime.synchronize(None)
