"""What slows the measuring process: tracers and profilers go off and come back, the rest makes a case invalid."""

import cProfile
import os
import pstats
import subprocess
import sys
import threading
import tracemalloc

import pytest

from pytest_npubench.campaign.callable_timing import no_instrumentation, time_callable
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


def observed():
    """What a tracer or profiler is to see, and is not to see."""


def in_a_thread():
    thread = threading.Thread(target=observed)
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    ("install", "installed"),
    [(threading.settrace, threading.gettrace), (threading.setprofile, threading.getprofile)],
    ids=["trace", "profile"],
)
def test_threads_that_are_started_meanwhile_are_not_seen(install, installed):
    seen, before = [], installed()

    def tool(frame, event, argument):
        if event == "call":
            seen.append(frame.f_code is observed.__code__)

    install(tool)
    try:
        with no_instrumentation():
            in_a_thread()
        assert not seen
        assert installed() is tool
        in_a_thread()
        assert any(seen)
    finally:
        install(before)


def test_cprofile_goes_on_after():
    """Before Python 3.12 it is no callable, which setprofile would take back and fail with at the next call."""
    profile = cProfile.Profile()
    profile.enable()
    with no_instrumentation():
        observed()
    observed()
    observed()
    profile.disable()
    counts = {function: row[0] for (_, _, function), row in pstats.Stats(profile).stats.items()}
    assert counts["observed"] == 2


def test_without_any_tool_nothing_is_installed():
    if sys.gettrace() or sys.getprofile():
        pytest.skip("this run is traced itself")
    with no_instrumentation():
        sys.settrace(None)
    assert sys.gettrace() is sys.getprofile() is None


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring came with Python 3.12")
@pytest.mark.parametrize("locally", [False, True])
def test_callbacks_of_sys_monitoring_are_off(locally):
    monitoring, tool = sys.monitoring, 4
    event = monitoring.events.PY_START
    seen = []
    monitoring.use_tool_id(tool, "the test's own")
    try:
        monitoring.register_callback(tool, event, lambda code, offset: seen.append(code is observed.__code__))
        if locally:
            monitoring.set_local_events(tool, observed.__code__, event)
        else:
            monitoring.set_events(tool, event)
        with no_instrumentation():
            observed()
        assert not any(seen)
        observed()
        assert any(seen)
        assert monitoring.get_events(tool) == (0 if locally else event)
    finally:
        monitoring.set_events(tool, 0)
        monitoring.set_local_events(tool, observed.__code__, 0)
        monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
