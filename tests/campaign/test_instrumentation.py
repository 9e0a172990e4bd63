"""Tracers and profilers off, and back: of this thread, of threads to come, and of sys.monitoring."""

import cProfile
import pstats
import sys
import threading

import pytest

from pytest_npubench.campaign.callable_timing import no_instrumentation


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
