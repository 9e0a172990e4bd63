"""No tracing and no profiling while something is timed: under coverage a Python function takes many times its time.

As pytest-benchmark does (its PauseInstrumentation), the tracer and the profiler of this thread are taken off and put
back. So are those that new threads would get, and the callbacks of sys.monitoring (Python 3.12), by which coverage
measures too. Threads that already run keep theirs.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

MONITORING_TOOLS = range(6)
"""The ids that sys.monitoring has for tools; its own for settrace and setprofile come after."""


@contextmanager
def no_instrumentation() -> Iterator[None]:
    """Everything is put back at the end, after an error too."""
    with ExitStack() as at_the_end:
        _pause_tracer(at_the_end)
        _pause_profiler(at_the_end)
        _pause_monitoring(at_the_end)
        yield


def _pause_tracer(at_the_end: ExitStack) -> None:
    if (tracer := sys.gettrace()) is not None:
        sys.settrace(None)
        at_the_end.callback(sys.settrace, tracer)
    if (of_threads := threading.gettrace()) is not None:
        threading.settrace(None)
        at_the_end.callback(threading.settrace, of_threads)


def _pause_profiler(at_the_end: ExitStack) -> None:
    profiler: Any = sys.getprofile()
    if callable(profiler):
        sys.setprofile(None)
        at_the_end.callback(sys.setprofile, profiler)
    elif profiler is not None:  # a cProfile.Profile before Python 3.12, which setprofile would take and could not call
        profiler.disable()
        at_the_end.callback(profiler.enable)
    if (of_threads := threading.getprofile()) is not None:
        threading.setprofile(None)
        at_the_end.callback(threading.setprofile, of_threads)


def _pause_monitoring(at_the_end: ExitStack) -> None:
    """Events that a tool set for single code objects stay set, so its callbacks are taken off as well."""
    monitoring: Any = getattr(sys, "monitoring", None)
    if monitoring is None:
        return
    events = {name: event for name, event in vars(monitoring.events).items() if name.isupper() and event}
    if "BRANCH_LEFT" in events:
        events.pop("BRANCH", None)  # since Python 3.14 it stands for two events
    for tool in MONITORING_TOOLS:
        if monitoring.get_tool(tool) is None:
            continue
        for event in events.values():
            if (callback := monitoring.register_callback(tool, event, None)) is not None:
                at_the_end.callback(monitoring.register_callback, tool, event, callback)
        if everywhere := monitoring.get_events(tool):
            monitoring.set_events(tool, 0)
            at_the_end.callback(monitoring.set_events, tool, everywhere)
