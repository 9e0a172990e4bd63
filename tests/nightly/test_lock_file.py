"""The lock file: what it reads, what it makes of what is installed, and that another environment measures nothing."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from pytest_npubench.errors import NightlyError
from pytest_npubench.nightly.lock_file import check_lock, differences, lock_text, read_pins
from pytest_npubench.nightly.night import Night

from .conftest import Nights
from .runner import Runner


def lock(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "lock.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_a_lock_file_may_hold(tmp_path: Path) -> None:
    text = """# a comment
--extra-index-url https://download.pytorch.org/whl/cpu

jax==0.10.2  # the runtime
Jinja2 == 3.1.6
ml_dtypes==0.6.0 ; python_version >= "3.0"
tomli==2.0.1 ; python_version < "3.0"
"""
    assert read_pins(lock(tmp_path, text)) == {"jax": "0.10.2", "jinja2": "3.1.6", "ml-dtypes": "0.6.0"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("jax==1\njax>=0.6\n", "line 2: 'jax>=0.6': want NAME==VERSION"),
        ("jax @ https://example.org/jax.whl\n", "line 1: .*want NAME==VERSION"),
        ("jax==1 ; python_versoin < '3'\n", "line 1"),
        ("# nothing\n", "pins nothing"),
    ],
)
def test_a_line_that_pins_nothing_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(NightlyError, match=said):
        read_pins(lock(tmp_path, text))


def test_a_lock_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(NightlyError, match=r"none\.txt: No such file"):
        read_pins(tmp_path / "none.txt")


def test_a_builds_own_label_does_not_count_and_what_is_timed_stands_first() -> None:
    pins = {"attrs": "1", "jax": "0.9.0", "torch": "2.13.0", "libtpu": "0.0.42"}
    installed = {"attrs": "2", "jax": "0.10.2", "torch": "2.13.0+cpu", "libtpu": None}
    assert differences(pins, installed) == (
        "jax 0.9.0 -> 0.10.2",
        "libtpu 0.0.42 -> not installed",
        "attrs 1 -> 2",
    )
    assert differences({"torch": "2.13.0+cu126"}, {"torch": "2.13.0+cpu"}) == ("torch 2.13.0+cu126 -> 2.13.0+cpu",)


def test_the_lock_of_this_environment_is_this_environment(tmp_path: Path, night: Night) -> None:
    text = lock_text(("cpu", "postgres"), ("--extra-index-url https://download.pytorch.org/whl/cpu",))
    pins = read_pins(lock(tmp_path, text))
    assert pins["jax"] == metadata.version("jax")
    assert {"jaxlib", "ml-dtypes", "pluggy", "torch", "psycopg", "jinja2"} <= pins.keys()
    assert pins.keys().isdisjoint({"hypothesis", "ruff", "pytest-npubench"})  # installed here, and not needed there
    assert check_lock(night, tmp_path / "lock.txt").outcome == "done"


def test_an_extra_that_is_none_is_told() -> None:
    with pytest.raises(NightlyError, match=r"no extra 'gpu'; it has .*cuda"):
        lock_text(("gpu",))


def test_no_lock_is_a_warning(night: Night) -> None:
    assert check_lock(night, None).outcome == "warning"


def test_in_another_environment_nothing_is_measured(nights: Nights, tmp_path: Path) -> None:
    runner: Runner = nights.copy(tmp_path)
    path = lock(tmp_path, "numpy==1.0\npytest-benchmark==" + metadata.version("pytest-benchmark") + "\n")
    before = runner.state.journal.read_bytes()
    done = runner.night("--lock", str(path))
    assert done.status == 1
    assert f"lock: nothing is measured: the environment is not that of {path}: numpy 1.0 -> " in done.out
    assert "measure: nothing was measured: see lock" in done.out
    assert runner.state.journal.read_bytes() == before
    assert json.loads((runner.out / "night.json").read_text())["measure"]["outcome"] == "failed"
