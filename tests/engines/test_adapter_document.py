"""docs/adapters.md: its adapter runs, and LENS on it gives the number beside it."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_npubench.engines import run_trace as trace
from pytest_npubench.engines.protocol import Engine

TEXT = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text(encoding="utf-8")
ADAPTER, USE, DESCRIPTOR, *_ = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture
def names(monkeypatch):
    """Both blocks on a clock that only sleeping moves."""
    now_s = [0.0]
    monkeypatch.setattr(time, "sleep", lambda seconds: now_s.__setitem__(0, now_s[0] + seconds))
    monkeypatch.setattr(trace, "perf_counter", lambda: now_s[0])
    found: dict[str, object] = {}
    exec(ADAPTER + USE, found)
    return found


def test_the_prediction_is_the_sum_of_its_sleeps(names):
    by_hand_s = 128e-5 + 28 * 128e-6 + 31 * 256e-6
    assert names["prediction"].e2e_s == pytest.approx(by_hand_s)
    (said,) = re.findall(r"`prediction\.e2e_s` is ([\d.]+) ms", TEXT)
    assert float(said) == pytest.approx(1000 * by_hand_s, abs=0.0005)


def test_the_adapter_has_all_that_the_protocol_names(names):
    wanted = {*Engine.__annotations__, "load", "run", "time_move"}
    assert not [name for name in wanted if not hasattr(names["engine"], name)]


def test_the_descriptor_says_why_it_does_not_serve():
    found: dict[str, Any] = {}
    exec(DESCRIPTOR, found)
    engine = found["ENGINE"]
    assert engine.why_not_served("buckets", "cpu") == "sleeping_vendor is not installed"
    assert engine.why_not_served("buckets", "neuron") == "sleeping does not serve neuron; it serves cpu, tpu"
    assert engine.why_not_served("scheduling", "cpu").startswith("sleeping does not serve the suite scheduling")


def test_the_table_of_a_service_names_what_it_has():
    from pytest_npubench.suites.buckets.service import BucketService

    table = TEXT[TEXT.index("## Registering") : TEXT.index("## Engines, and where each has run")]
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)[`(]", row)]
    assert not [name for name in named if not hasattr(BucketService, name)]
    assert {*BucketService.__annotations__} <= {*named}


def test_an_adapter_is_about_thirty_lines():
    assert len(ADAPTER[ADAPTER.index("class ") :].splitlines()) <= 30
