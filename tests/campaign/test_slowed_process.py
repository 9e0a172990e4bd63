"""What slows the measuring process and cannot be switched off makes a case invalid, and says what it is."""

import os
import subprocess
import sys
import tracemalloc

import pytest

from pytest_npubench.campaign.callable_timing import time_callable
from pytest_npubench.campaign.slowed_process import check_not_slowed
from pytest_npubench.errors import MeasurementError

CHECK = "from pytest_npubench.campaign.slowed_process import check_not_slowed; check_not_slowed()"


@pytest.mark.parametrize(
    ("options", "environment", "reason"),
    [
        ((), {}, ""),
        (("-X", "dev"), {}, "checks each block (see -X dev"),
        ((), {"PYTHONMALLOC": "malloc_debug"}, "checks each block (PYTHONMALLOC=malloc_debug)"),
        ((), {"PYTHONMALLOC": "malloc"}, ""),
        (("-E",), {"PYTHONMALLOC": "debug"}, ""),
        ((), {"MALLOC_PERTURB_": "165"}, "the C library's allocator is debugged (MALLOC_PERTURB_=165)"),
        (("-X", "tracemalloc"), {}, "tracemalloc traces each allocation"),
    ],
)
def test_how_python_was_started(options, environment, reason):
    # a fresh interpreter: it looks at its options once, as it starts
    command = [sys.executable, *options, "-c", CHECK]
    fresh = {**os.environ, **environment, "NPUBENCH_TESTS_FRESH": "1"}
    done = subprocess.run(command, env=fresh, capture_output=True, text=True, check=False)
    assert bool(done.returncode) == bool(reason)
    assert reason in done.stderr


def test_a_case_that_begins_to_trace_is_invalid():
    about = {"rounds": 2, "max_warmup": 2, "count_compiles": lambda: 0}
    try:
        with pytest.raises(MeasurementError, match="what is measured is slowed: tracemalloc traces"):
            time_callable(tracemalloc.start, (), {}, lambda value: None, **about)
    finally:
        tracemalloc.stop()
    assert time_callable(list, (), {}, lambda value: None, **about).samples_s


def test_a_debugger_that_holds_the_process(tmp_path):
    status = tmp_path / "status"
    status.write_text("Name:\tpython\nTracerPid:\t0\n")
    check_not_slowed(status)
    status.write_text("Name:\tpython\nTracerPid:\t4711\n")
    with pytest.raises(MeasurementError, match="process 4711 traces this one"):
        check_not_slowed(status)
    check_not_slowed(tmp_path / "no kernel that says so")


def test_jax_that_runs_for_debugging():
    import jax

    for setting in ("jax_disable_jit", "jax_debug_nans"):
        jax.config.update(setting, True)
        try:
            with pytest.raises(MeasurementError, match=rf"jax runs for debugging \({setting.upper()}\)"):
                check_not_slowed()
        finally:
            jax.config.update(setting, False)
    check_not_slowed()
