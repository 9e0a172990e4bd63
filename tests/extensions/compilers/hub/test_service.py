"""The unmodified client against the stand-in: devices, uploads, jobs, and every refusal in words."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.backends import backend
from pytest_npubench.core.hardware import HardwareSpec
from pytest_npubench.errors import (
    AccessRefusedError,
    DeviceBusyError,
    DeviceUnavailableError,
    MeasurementError,
    NpubenchError,
)
from pytest_npubench.extensions.compilers.hub import backend as qualcomm
from pytest_npubench.extensions.compilers.hub import probe as aihub_probe
from pytest_npubench.extensions.compilers.hub.service import AiHubService, HubDevice

ASKED = "the list of devices"


def s24(service: AiHubService) -> HubDevice:
    return next(item for item in service.devices() if (item.name, item.os) == ("Samsung Galaxy S24", "14"))


def test_devices_and_tools(hub: Any) -> None:
    service = AiHubService()
    chosen = qualcomm.choose(service.devices())
    assert [(item.name, item.os) for item in chosen] == [("Samsung Galaxy S24", "14"), ("Snapdragon 8 Elite QRD", "15")]
    assert service.qairt() == ("2.37", "2.37.0.250724")
    assert (service.host, service.stand_in) == ("127.0.0.1", True)
    hub.script.frameworks = False
    assert service.qairt() is None


def test_probe_in_its_own_process(hub: Any, spec: HardwareSpec) -> None:
    """The whole way: the process that asks, the hardware file that matches, the device that opens, its stack."""
    probe = backend("qualcomm").probe(60)
    matching = [device for device in probe.devices if spec.matches(device.name)]
    assert [device.name for device in matching] == ["Samsung Galaxy S24, qualcomm-snapdragon-8gen3"], probe.reason
    stack = backend("qualcomm").open(matching, None).stack()
    assert stack.runtime == "QAIRT 2.37.0.250724"
    assert "hexagon v75" in stack.device_class
    assert "stand-in" in stack.device_class
    hub.script.devices = ()
    with pytest.raises(DeviceUnavailableError, match="no longer lists Samsung Galaxy S24"):
        backend("qualcomm").open(matching, None)


def test_expired_token(hub: Any) -> None:
    hub.script.expired = True
    found, reason = aihub_probe.read_answer(aihub_probe.answer())
    assert found == ()
    assert reason.startswith("Qualcomm AI Hub refused the token: it is wrong or has expired")


def test_probe_that_gets_no_answer(hub: Any) -> None:
    assert backend("qualcomm").probe(0.01).reason == "Qualcomm AI Hub did not answer within 0.01 s"


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ({"expired": True}, AccessRefusedError, "refused the token"),
        ({"refuse_gets": 100}, DeviceBusyError, f"limits the rate of requests: {ASKED}"),
        ({"drop_before": 100}, DeviceUnavailableError, f"cannot be reached: {ASKED}"),
        ({"status": 503}, DeviceUnavailableError, f"cannot be reached: {ASKED}"),
        ({"status": 501}, DeviceUnavailableError, "out of order"),
        ({"status": 400}, MeasurementError, f"{ASKED}: out of order"),
    ],
)
def test_refusals(hub: Any, script: dict[str, Any], kind: type[NpubenchError], words: str) -> None:
    service = AiHubService()
    for name, value in script.items():
        setattr(hub.script, name, value)
    with pytest.raises(kind, match=words) as caught:
        service.devices()
    assert type(caught.value) is kind


def test_a_few_refused_or_dropped_requests_do_no_harm(hub: Any) -> None:
    hub.script.refuse_gets, hub.script.drop_before = 2, 2
    assert AiHubService().devices()


def test_unreachable(hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        text = (tmp_path / "client.ini").read_text().replace(hub.url, f"http://127.0.0.1:{free.getsockname()[1]}")
    (tmp_path / "other.ini").write_text(text)
    monkeypatch.setenv("QAIHUB_CLIENT_INI", str(tmp_path / "other.ini"))
    with pytest.raises(DeviceUnavailableError, match="cannot be reached"):
        AiHubService().devices()


@pytest.mark.parametrize("text", ["", "no ini file", "[api]\napi_url = x\n"])
def test_broken_configuration(hub: Any, tmp_path: Path, text: str) -> None:
    (tmp_path / "client.ini").write_text(text)
    with pytest.raises(DeviceUnavailableError, match="no Qualcomm AI Hub token that can be read"):
        AiHubService()


def test_a_job_from_end_to_end(hub: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Upload, compile, profile, report; nothing is printed, and the token is nowhere in what is kept."""
    service = AiHubService()
    hub.script.polls = 2
    path = tmp_path / "model.onnx"
    path.write_bytes(b"x" * 1000)
    model = service.upload(path, "prefill-tiny-b1-8")
    assert hub.uploaded == {model: 1000}
    compiled = service.submit_compile(model, s24(service), name="npubench-prefill-tiny-b1-8-0", options="--a b")
    assert hub.jobs[compiled].body.options == "--a b"
    assert service.state(compiled) == ("OPTIMIZING_MODEL", "")
    assert service.state(compiled)[0] == "SUCCESS"
    name = "npubench-prefill-tiny-b1-8-gpu-0"
    job = service.submit_profile(compiled, s24(service), name=name, options="--compute_unit gpu")
    body = hub.jobs[job].body
    assert (body.device.name, body.device.os, body.is_profiling_on) == ("Samsung Galaxy S24", "14", True)
    assert service.find_job(name, "profile") == job
    assert service.find_job(name, "compile") is None
    assert service.find_job("npubench-prefill-tiny-b1-8-0", "compile") == compiled
    while service.state(job)[0] != "SUCCESS":
        pass
    report = service.report(job)
    assert report["execution_summary"]["all_inference_times"][:3] == [160, 161, 162]
    assert report["tool_versions"] == {"QAIRT": "2.37.0.250724"}
    assert {layer["compute_unit"] for layer in report["execution_detail"]} == {"GPU", "CPU"}
    assert capfd.readouterr() == ("", "")


def test_job_nobody_knows(hub: Any) -> None:
    with pytest.raises(MeasurementError, match=r"the state of job j99: no such job|could not be found"):
        AiHubService().state("j99")


def test_uploading_a_folder(hub: Any, tmp_path: Path) -> None:
    """Weights beside the graph: the client takes the folder as one model."""
    for name in ("model.onnx", "model.data"):
        (tmp_path / "graph" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "graph" / name).write_bytes(b"x" * 100)
    assert AiHubService().upload(tmp_path / "graph", "graph") in hub.uploaded
