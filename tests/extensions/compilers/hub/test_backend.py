"""Which devices of Qualcomm AI Hub are taken, and what is said where there are none."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.backends import backend
from pytest_npubench.backends.protocol import Device
from pytest_npubench.errors import (
    AccessRefusedError,
    DeviceBusyError,
    DeviceUnavailableError,
    MeasurementError,
)
from pytest_npubench.extensions.compilers.hub import backend as qualcomm
from pytest_npubench.extensions.compilers.hub import probe as aihub_probe
from pytest_npubench.extensions.compilers.hub.backend import AiHubRuntime, choose
from pytest_npubench.extensions.compilers.hub.client_errors import one_line, translated
from pytest_npubench.extensions.compilers.hub.service import HubDevice
from pytest_npubench.processes import guarded

TOKEN = "0123456789abcdef"
GEN3 = "chipset:qualcomm-snapdragon-8gen3"


def device(name: str, os: str = "14", *attributes: str) -> HubDevice:
    return HubDevice(name=name, os=os, attributes=("framework:qnn", *(attributes or (GEN3,))))


class TestChoice:
    def test_one_device_a_chipset(self) -> None:
        elite = device("QRD", "15", "chipset:qualcomm-snapdragon-8-elite")
        chosen = choose([device("S24 Ultra"), device("S24", "13"), device("S24", "14"), device("S24", "9"), elite])
        assert chosen == (elite, device("S24", "14"))

    def test_what_cannot_be_profiled_is_never_chosen(self) -> None:
        never = [
            device("S24 (Proxy)"),
            device("S24 (Family)"),
            device("Pixel 8", "14", "chipset:google-tensor-g3"),
            device("No chipset", "14", "os:android"),
            HubDevice(name="No QNN", os="14", attributes=(GEN3,)),
        ]
        assert choose(never) == ()
        assert choose([*never, device("S24")]) == (device("S24"),)


class Client:
    """Answers of the probing process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        configuration = tmp_path / "client.ini"
        configuration.touch()
        monkeypatch.setenv("QAIHUB_CLIENT_INI", str(configuration))
        monkeypatch.setattr(qualcomm, "find_spec", lambda name: object())
        monkeypatch.setattr(guarded, "run", self._run)
        self.stdout = ""
        self.error: Exception | None = None

    def _run(self, command: list[str], **options: Any) -> Any:
        if self.error:
            raise self.error
        return subprocess.CompletedProcess(command, 0, stdout=self.stdout, stderr="")


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Client:
    return Client(monkeypatch, tmp_path)


class TestProbe:
    def test_not_installed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(qualcomm, "find_spec", lambda name: None)
        reason = "qai-hub is not installed: pip install pytest-npubench[qaihub]"
        assert backend("qualcomm").probe(1).reason == reason

    def test_no_token(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """The client's own configuration, at its usual place or where its own variable says."""
        monkeypatch.setattr(qualcomm, "find_spec", lambda name: object())
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("QAIHUB_CLIENT_INI", raising=False)
        missing = "is missing (run: qai-hub configure --api_token TOKEN)"
        usual = tmp_path / ".qai_hub" / "client.ini"
        assert backend("qualcomm").probe(1).reason == f"no Qualcomm AI Hub token: {usual} {missing}"
        monkeypatch.setenv("QAIHUB_CLIENT_INI", str(tmp_path / "other.ini"))
        assert backend("qualcomm").probe(1).reason == f"no Qualcomm AI Hub token: {tmp_path / 'other.ini'} {missing}"

    def test_found(self, client: Client) -> None:
        client.stdout = f'chatter\n{{"devices": [["S24", "14", ["framework:qnn", "{GEN3}"]]]}}\n'
        (found,) = backend("qualcomm").probe(1).devices
        assert (found.id, found.name) == ("qualcomm:0", "S24, qualcomm-snapdragon-8gen3")
        assert found.uuid == "aihub-s24-14"

    def test_only_proxies(self, client: Client) -> None:
        client.stdout = f'{{"devices": [["S24 (Proxy)", "14", ["framework:qnn", "{GEN3}"]]]}}'
        probe = backend("qualcomm").probe(1)
        assert not probe.devices
        assert "lists 1 devices, 1 of them proxies" in probe.reason

    def test_reason_of_the_service(self, client: Client) -> None:
        client.stdout = '{"reason": "Qualcomm AI Hub refused the token: it has expired"}'
        assert backend("qualcomm").probe(1).reason == "Qualcomm AI Hub refused the token: it has expired"

    @pytest.mark.parametrize("stdout", ["", "nonsense", "{}", '{"devices": [[1]]}', "[]"])
    def test_no_answer_to_be_read(self, client: Client, stdout: str) -> None:
        client.stdout = stdout
        assert "answer cannot be read" in backend("qualcomm").probe(1).reason

    def test_too_slow(self, client: Client) -> None:
        client.error = subprocess.TimeoutExpired("probe", 7)
        assert backend("qualcomm").probe(7).reason == "Qualcomm AI Hub did not answer within 7 s"

    def test_crashed(self, client: Client) -> None:
        client.error = subprocess.CalledProcessError(1, "probe", stderr=f"token {TOKEN}")
        reason = backend("qualcomm").probe(7).reason
        assert reason == "Qualcomm AI Hub could not be asked: CalledProcessError"

    def test_one_device_at_a_time(self) -> None:
        with pytest.raises(DeviceUnavailableError, match="one device at a time"):
            backend("qualcomm").open((), None)
        with pytest.raises(DeviceUnavailableError, match="one device at a time"):
            backend("qualcomm").open([Device(family="qualcomm", ordinal=n, name="S24") for n in range(2)], None)


class StatusError(Exception):
    def __init__(self, status_code: int, text: str = "") -> None:
        super().__init__(text)
        self.status_code = status_code


class RateLimitedError(Exception):
    pass


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "kind", "words"),
        [
            (StatusError(401), AccessRefusedError, "refused the token: it is wrong or has expired"),
            (StatusError(403), AccessRefusedError, "refused the token"),
            (RateLimitedError("slow down"), DeviceBusyError, "limits the rate of requests"),
            (StatusError(429), DeviceBusyError, "limits the rate"),
            (ConnectionError("refused"), DeviceUnavailableError, "cannot be reached: the list: refused"),
            (StatusError(502), DeviceUnavailableError, "out of order .status 502."),
            (StatusError(404, "ID 'j1' could not be found"), MeasurementError, "the list: ID 'j1' could not be found"),
            (ValueError("odd model"), MeasurementError, "the list: odd model"),
        ],
    )
    def test_in_words(self, error: Exception, kind: type[Exception], words: str) -> None:
        found = translated(error, TOKEN, "the list")
        assert type(found) is kind
        with pytest.raises(kind, match=words):
            raise found

    def test_hidden_cause(self) -> None:
        """The client raises its own error `from None`; the status is on the one it hid."""
        shown = RuntimeError("Something failed.")
        shown.__context__, shown.__suppress_context__ = StatusError(401), True
        assert type(translated(shown, TOKEN, "x")) is AccessRefusedError

    def test_the_token_is_never_told(self) -> None:
        text = one_line(f"┌──┐\n| header: token {TOKEN} |\n└──┘", TOKEN)
        assert text == "header: token (token)"
        assert TOKEN not in str(translated(ValueError(f"bad {TOKEN}"), TOKEN, "x"))
        assert len(one_line("long " * 500, TOKEN)) < 400


class Service:
    host, version, stand_in = "workbench.aihub.qualcomm.com", "0.56.0", False


class TestRuntime:
    def runtime(self, *, stand_in: bool = False, qairt: tuple[str, str] | None = ("2.37", "2.37.0")) -> AiHubRuntime:
        service: Any = Service()
        service.stand_in = stand_in
        phone = device("S24", "14", GEN3, "hexagon:v75", "os:android", "htp-supports-fp16:true", "soc-model:57")
        return AiHubRuntime(service, phone, qairt)

    def test_stack(self) -> None:
        stack = self.runtime().stack()
        assert stack.device_class == (
            "S24, qualcomm-snapdragon-8gen3, hexagon v75, soc-model 57, htp-supports-fp16 true"
        )
        assert (stack.driver, stack.runtime, stack.compiler) == ("android 14", "QAIRT 2.37.0", "QAIRT 2.37.0")
        assert dict(stack.extra) == {"service": "workbench.aihub.qualcomm.com", "qai-hub": "0.56.0"}

    def test_a_stand_in_is_another_device(self) -> None:
        assert self.runtime(stand_in=True).stack().device_class.endswith("stand-in, not Qualcomm's service")

    def test_unknown_tools(self) -> None:
        assert self.runtime(qairt=None).stack().runtime is None

    def test_a_sleeping_host_disturbs_nothing(self) -> None:
        state = self.runtime().telemetry().read()
        assert state.taken_at_s == state.wall_at_s

    def test_no_function_runs_there(self) -> None:
        runtime = self.runtime()
        with pytest.raises(DeviceUnavailableError, match="no Python function"):
            runtime.compile("f", len, ())
        with pytest.raises(MeasurementError, match="does not run on a device of Qualcomm AI Hub"):
            runtime.synchronize(1)


def test_answer_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probing process says in words that the client cannot be imported."""
    import sys

    monkeypatch.setitem(sys.modules, "qai_hub", None)
    found, reason = aihub_probe.read_answer(aihub_probe.answer())
    assert found == ()
    assert "pip install pytest-npubench[qaihub]" in reason
