"""Tests of a user's own with a fault in them, which $PLANTED names; tests copy this file into their projects."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import clock
import pytest

PLANTED = os.environ.get("PLANTED", "")
ENDINGS = ("wrong_answer", "teardown_error", "strict_xpass", "skipped_at_its_end", "measured_twice")
FIRST_TRY = Path("first_try.txt")
TIMES = {
    "slower_call": (1.1,),
    "most_calls_slower": (3, 3, 1),
    "slow_tail": (1, 1, 1, 1, 1, 1, 1, 5),
    "half_the_work": (0.5,),
    "no_time_at_all": (0,),
}
factors = cycle(TIMES.get(PLANTED, (1,)))
pytestmark = pytest.mark.openvino
if PLANTED == "tracing":
    tracemalloc.start()


@pytest.fixture
def after() -> Iterator[None]:
    yield
    if PLANTED == "teardown_error":
        raise OSError("the device did not come back")


def call() -> object:
    clock.work("call", 0.020 * next(factors))
    return (step for step in ()) if PLANTED == "nothing_is_run" else None


@pytest.mark.xfail(PLANTED == "strict_xpass", reason="known to be broken", strict=True)
def test_call(npubench, after):
    npubench(call)
    if PLANTED == "wrong_answer" or (PLANTED == "wrong_at_first" and not FIRST_TRY.exists()):
        FIRST_TRY.touch()
        assert 1 + 1 == 3
    if PLANTED == "skipped_at_its_end":
        pytest.skip("no good")
    if PLANTED == "measured_twice":
        npubench(call)


@pytest.mark.npubench(max_median_s=1e-9 if PLANTED in ENDINGS else 60)
def test_limited(npubench):
    """Over its limit where another test ends badly: a run may be red for two reasons."""
    npubench(clock.work, "limited", 0.010)
