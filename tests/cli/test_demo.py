"""`npubench demo` on a virtual stopwatch: what it plants is reported, where it is planted and the gate looks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_npubench.cli import demo
from pytest_npubench.cli.main import main

STOPWATCH = """
import os
import random
import re
from pathlib import Path

from pytest_npubench.campaign import repeated_call

now_s = 0.0
repeated_call.perf_counter = lambda: now_s
factor = 1 + 0.002 * random.Random(os.getpid()).gauss(0.0, 1.0)


def pytest_collection_modifyitems(items):
    for item in items:
        count = int(re.search(r"range\\(([0-9_]+)\\)", Path(item.module.__file__).read_text())[1])

        def total():
            global now_s
            now_s += 1e-7 * count * factor

        item.module.total_of_squares = total
"""


@pytest.fixture(autouse=True)
def _stopwatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stopwatch.py").write_text(STOPWATCH, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p stopwatch -p no:benchmark --npubench-remeasure=1")


def test_the_planted_slowdown_is_reported_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "kept"
    assert main(["demo", "-o", str(folder)]) == 0
    output = capsys.readouterr().out
    assert "regressed: call_s: 50 % worse than 3 accepted sessions" in output
    assert "The planted slowdown of 50 % was reported" in output
    assert {"test_demo.py", "baselines", "report.html"} <= {path.name for path in folder.iterdir()}
    assert main(["demo", "-o", str(folder)]) == 1
    assert f"{folder} is not empty" in capsys.readouterr().err


def test_a_slowdown_that_is_not_there_is_not_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "NUM_SLOWER", demo.NUM_NUMBERS)
    assert main(["demo"]) == 1
    assert "was NOT reported" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pytest.skip('no {count}')", "test_demo.py:5: no 10000\n"),
        ("raise OSError('broken {count}')", "E       OSError: broken 10000\n"),
    ],
)
def test_a_first_run_that_accepts_nothing_says_why(
    line: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "TEST", f"import pytest\n\n\ndef test_nothing():\n    {line}  # not range({{count}})\n")
    assert main(["demo"]) == 1
    assert words in capsys.readouterr().err
