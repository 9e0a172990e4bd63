"""A test of a user's own by the machine's clock; where $PLANTED says so, Python's clocks stand still meanwhile."""

from __future__ import annotations

import os
import sys
import time

import pytest

from pytest_npubench.campaign import repeated_call
from pytest_npubench.core import clock

IS_PLANTED = os.environ.get("PLANTED") == "standing_clock"
CLOCKS = (time.perf_counter, time.monotonic, time.time)
sleep = time.sleep


@pytest.mark.openvino
def test_sleep(npubench, monkeypatch):
    monkeypatch.setattr(repeated_call, "perf_counter", clock.perf_counter)  # other tests put a stopwatch there
    if IS_PLANTED:
        for module in list(sys.modules.values()):
            for name, value in list(vars(module).items()):
                if any(value is one for one in CLOCKS):
                    monkeypatch.setattr(module, name, lambda: 0.0)
    npubench(lambda: sleep(0.005 if IS_PLANTED else 0.002))
