"""What makes this process slower than it is without, and cannot be switched off while samples are taken.

Tracers and profilers can (callable_timing.no_instrumentation). What stays makes a measurement meaningless: a function
that allocates took 32 times as long under tracemalloc, and 3.6 times with PYTHONMALLOC=debug.
"""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from pytest_npubench.errors import MeasurementError

STATUS = Path("/proc/self/status")
OF_JAX = ("JAX_DISABLE_JIT", "JAX_DEBUG_NANS", "JAX_DEBUG_INFS", "JAX_CHECK_TRACER_LEAKS", "JAX_ENABLE_CHECKS")
OF_MALLOC = ("MALLOC_CHECK_", "MALLOC_PERTURB_")


def check_not_slowed(status: Path = STATUS) -> None:
    """Raises MeasurementError where something slows this process. `status` is the kernel's word on it."""
    if reasons := [*_slowed(status)]:
        raise MeasurementError(f"what is measured is slowed: {'; '.join(reasons)}")


def _slowed(status: Path) -> Iterator[str]:
    if tracemalloc.is_tracing():
        yield "tracemalloc traces each allocation (see -X tracemalloc, PYTHONTRACEMALLOC, tracemalloc.start)"
    allocator = "" if sys.flags.ignore_environment else os.environ.get("PYTHONMALLOC", "")
    if allocator.endswith("debug"):
        yield f"Python's allocator checks each block (PYTHONMALLOC={allocator})"
    elif sys.flags.dev_mode:
        yield "Python's allocator checks each block (see -X dev, PYTHONDEVMODE)"
    elif hasattr(sys, "gettotalrefcount"):
        yield "this Python was built for debugging (--with-pydebug)"
    for name in OF_MALLOC:
        if os.environ.get(name, "0") != "0":
            yield f"the C library's allocator is debugged ({name}={os.environ[name]})"
    for name in OF_JAX:
        if getattr(getattr(sys.modules.get("jax"), "config", None), name.lower(), False):
            yield f"jax runs for debugging ({name})"
    if getattr(sys.modules.get("torch"), "is_anomaly_enabled", bool)():
        yield "torch looks for the origin of NaNs (torch.autograd.set_detect_anomaly)"
    if tracer := _tracer(status):
        yield f"process {tracer} traces this one, as a debugger or strace does"


def _tracer(status: Path) -> int:
    try:
        lines = status.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("TracerPid:")), 0)
