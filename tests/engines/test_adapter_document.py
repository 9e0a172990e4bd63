"""docs/adapters.md: its adapter runs, and LENS on it gives the number beside it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from pytest_npubench.engines.jax_dense import trace
from pytest_npubench.engines.protocol import Engine

TEXT = (Path(__file__).parents[2] / "docs" / "adapters.md").read_text(encoding="utf-8")
ADAPTER, USE, *_ = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


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


def test_an_adapter_is_about_thirty_lines():
    assert len(ADAPTER[ADAPTER.index("class ") :].splitlines()) <= 30
