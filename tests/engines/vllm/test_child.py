"""A child that dies, hangs or refuses is an error with its name and last words."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from pytest_npubench.engines.vllm import child
from pytest_npubench.engines.vllm.child import OtherInterpreter
from pytest_npubench.engines.vllm.process import PYTHON_VARIABLE, vllm_python
from pytest_npubench.errors import ConfigError, DeviceUnavailableError, MeasurementError, UnitLostError

from . import child_program_name


@pytest.fixture
def started() -> Iterator[OtherInterpreter]:
    made = OtherInterpreter(sys.executable, child_program_name(), name="the test's child", environment={})
    yield made
    made.close()


def test_answers_come_back(started: OtherInterpreter) -> None:
    assert started.call("echo", 1, (2, 3), timeout_s=60) == [1, (2, 3)]


def test_a_named_error_keeps_its_name(started: OtherInterpreter) -> None:
    with pytest.raises(ConfigError, match="no such thing"):
        started.call("refuse", "ConfigError", "no such thing", timeout_s=60)
    assert started.call("echo", timeout_s=60) == []


def test_any_other_error_says_what_it_was(started: OtherInterpreter) -> None:
    with pytest.raises(MeasurementError, match="ZeroDivisionError: by zero"):
        started.call("refuse", "ZeroDivisionError", "by zero", timeout_s=60)


def test_one_that_dies(started: OtherInterpreter) -> None:
    with pytest.raises(UnitLostError, match=r"was lost: exit status 7; its last words: something broke"):
        started.call("die", timeout_s=60)
    assert not started.is_open
    with pytest.raises(UnitLostError, match="was closed"):
        started.call("echo", timeout_s=60)


def test_one_that_hangs(started: OtherInterpreter) -> None:
    started.call("echo", timeout_s=60)
    with pytest.raises(UnitLostError, match=r"gave no answer within 0\.2 s"):
        started.call("hang", timeout_s=0.2)
    assert not started.is_open


def test_closing_twice(started: OtherInterpreter) -> None:
    started.close()
    started.close()


def test_an_interpreter_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PYTHON_VARIABLE, "/nowhere/python")
    with pytest.raises(DeviceUnavailableError, match=f"{PYTHON_VARIABLE} is '/nowhere/python'"):
        vllm_python()


def test_another_environment_gets_none_of_this_ones_packages() -> None:
    path = child.import_path("/another/bin/python")["PYTHONPATH"]
    assert "site-packages" not in path
