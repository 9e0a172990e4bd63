"""`npubench selfcheck` on a virtual stopwatch: what it plants is found, and missed where the gate is blind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_npubench.cli import selfcheck
from pytest_npubench.cli.main import main

STOPWATCH = """
import os
import random

import numpy as np

from pytest_npubench.campaign import repeated_call

now_s = 0.0
repeated_call.perf_counter = lambda: now_s
factor = 1 + 0.002 * random.Random(len(os.listdir())).gauss(0.0, 1.0)


class Products:
    rows = matrix = np.eye(2)

    def many(self):
        return 1000

    def __call__(self, count):
        global now_s
        now_s += 1e-5 * count * factor
        return np.eye(2) * (count == 1000)


def pytest_collection_modifyitems(items):
    for item in items:
        item.module.Products = Products
"""
OPTIONS = ("-p", "stopwatch", "-p", "no:benchmark", "--npubench-other-load=1", "--npubench-remeasure=1")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Runs the command on three sessions; its exit status, and of each row the word of what came of it."""
    (tmp_path / "stopwatch.py").write_text(STOPWATCH, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))

    def run(*options: str, marker: str = "cpu") -> tuple[int, dict[str, str], str]:
        status = main(["selfcheck", "-m", marker, "--sessions=3", "--", *OPTIONS, *options])
        output = capsys.readouterr().out
        titles = ("nothing", *(fault.title for fault in selfcheck.FAULTS))
        said = {
            title: line.removeprefix(title).strip()
            for line in output.splitlines()
            for title in titles
            if line.startswith(title)
        }
        return status, {title: text.partition("  ")[0] for title, text in said.items()}, output

    return run


def test_every_fault_is_found_and_nothing_is_no_alarm(planted) -> None:
    status, words, output = planted()
    assert words == {"nothing": "passed"} | {fault.title: "found" for fault in selfcheck.FAULTS}, output
    assert status == 0


def test_a_blind_gate_misses_what_it_does_not_look_at(planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfcheck, "FAULTS", selfcheck.FAULTS[:1])
    status, words, output = planted("--npubench-margin=0.5")
    assert words == {"nothing": "passed", selfcheck.FAULTS[0].title: "MISSED"}, output
    assert status == 1


def test_a_device_that_is_not_here_is_named_with_the_reason(planted) -> None:
    status, words, output = planted(marker="tpu")
    assert (status, words, output) == (1, {}, "unavailable: jax found platforms cpu\n")


def test_a_marker_that_selfcheck_has_no_test_for_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    selected = "collected 9 items / 9 deselected / 0 selected"
    assert "selects none of cpu, cuda and tpu" in str(selfcheck.why_not(selected, "neuron"))
    assert capsys.readouterr().err == ""
