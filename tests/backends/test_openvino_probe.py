"""What the probe makes of OpenVINO's answer. The child processes are FAKES here but where a test says otherwise, so
this needs no openvino."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.backends import backend, openvino
from pytest_npubench.backends.protocol import Device, Probe
from pytest_npubench.backends.telemetry.cpu import CpuTelemetry
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.suites.hardware_files import load_hardware

LAPTOP = (
    {"id": "NPU", "name": "Intel(R) AI Boost", "uuid": "00aa", "memory_bytes": 17_179_869_184},
    {"id": "GPU", "name": "Intel(R) Arc(TM) Graphics (iGPU)", "uuid": "00bb", "memory_bytes": None},
    {"id": "CPU", "name": "Intel(R) Core(TM) Ultra 7 155H", "uuid": None, "memory_bytes": None},
)
Fake = Callable[..., None]


@pytest.fixture
def answers(answers: Fake, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """The same where openvino is installed."""
    monkeypatch.setattr(openvino, "find_spec", lambda name: object())
    return answers


def probe() -> Probe:
    return backend("openvino").probe(5)


def test_openvino_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino, "find_spec", lambda name: None)
    words = "openvino is not installed: pip install pytest-npubench[openvino]"
    assert probe() == Probe(reason=words)
    with pytest.raises(DeviceUnavailableError) as caught:
        backend("openvino").open((), None)
    assert str(caught.value) == words


def test_the_devices_of_a_laptop(answers: Fake) -> None:
    answers(stdout=f"a plug-in's greeting\n{json.dumps(LAPTOP)}\n")
    npu, gpu, cpu = probe().devices
    assert npu == Device(
        family="openvino", ordinal=0, name="Intel(R) AI Boost", uuid="00aa", memory_bytes=17_179_869_184
    )
    assert (gpu.id, gpu.name) == ("openvino:1", "Intel(R) Arc(TM) Graphics (iGPU)")
    assert (cpu.id, cpu.name) == ("openvino:2", "Intel(R) Core(TM) Ultra 7 155H (OpenVINO CPU plugin)")


def test_the_shipped_hardware_file_takes_the_npu_and_the_gpu_but_never_the_cpu(answers: Fake) -> None:
    answers(stdout=json.dumps(LAPTOP))
    spec = load_hardware(default_directory() / "intel-core-ultra.toml")
    assert [spec.matches(device.name) for device in probe().devices] == [True, True, False]


def test_only_the_cpu_plugin_tells_its_state(answers: Fake) -> None:
    answers(stdout=json.dumps(LAPTOP))
    npu, _, cpu = probe().devices
    assert backend("openvino").telemetry((npu,)) is None
    assert isinstance(backend("openvino").telemetry((cpu,)), CpuTelemetry)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"stdout": "[]"}, "openvino found no device: neither an NPU nor a GPU, and no CPU plugin"),
        ({"stdout": "hello"}, "openvino gave no list of devices: hello"),
        ({"stdout": '[{"id": "NPU"}]'}, 'openvino gave no list of devices: [{"id": "NPU"}]'),
        ({"stdout": "7"}, "openvino gave no list of devices: 7"),
        ({"returncode": 1, "stderr": "Traceback\nImportError: no libtbb\n"}, "openvino failed: ImportError: no libtbb"),
        ({"returncode": -11}, "openvino failed: killed by signal 11 (SIGSEGV)"),
        (
            {"error": subprocess.TimeoutExpired("python", 5)},
            "openvino did not answer within 5 s (--npubench-probe-timeout)",
        ),
        ({"error": PermissionError("no fork")}, "openvino could not be asked: no fork"),
    ],
)
def test_a_reason_where_there_is_no_device(answers: Fake, answer: dict[str, Any], words: str) -> None:
    answers(**answer)
    assert probe() == Probe(reason=words, failed=answer != {"stdout": "[]"})


def test_the_documented_hardware_file_takes_the_cpu_plugin_alone(answers: Fake, tmp_path: Path) -> None:
    answers(stdout=json.dumps(LAPTOP))
    text = (Path(__file__).parents[2] / "docs" / "openvino.md").read_text(encoding="utf-8")
    file = tmp_path / "openvino-cpu.toml"
    file.write_text(text.partition("```toml\n")[2].partition("```")[0], encoding="utf-8")
    spec = load_hardware(file)
    assert spec.family == "openvino"
    assert [spec.matches(device.name) for device in probe().devices] == [False, False, True]
