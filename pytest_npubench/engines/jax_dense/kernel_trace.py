"""What jax's profiler says of a call: the seconds that the device's kernels took, without what lies between them.

A kernel is an event that names its HLO operation. Loops and calls are left out, as what they run has events of its own.
Of a line "XLA Ops", which a TPU and a GPU have, that line alone counts: others repeat it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax

from pytest_npubench.errors import MeasurementError

OPERATION, DEVICE, OPERATIONS_LINE = "hlo_op", "device_ordinal", "XLA Ops"
CONTAINERS = ("while", "call", "conditional")


def kernels_s(call: Callable[[], object]) -> float:
    """Seconds of all kernels of a call, on the busiest device. Raises MeasurementError where the trace has
    none, or this jax cannot read it."""
    if not hasattr(jax.profiler, "ProfileData"):
        raise MeasurementError(f"unavailable: jax {jax.__version__} cannot read its own traces")
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    with TemporaryDirectory(prefix="npubench-trace-") as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            call()
        traces = [jax.profiler.ProfileData.from_file(str(path)) for path in Path(folder).rglob("*.xplane.pb")]
    busy_s = [seconds for trace in traces for plane in trace.planes for seconds in _by_device(plane)]
    if not busy_s:
        raise MeasurementError("unavailable: the device's trace names no kernels")
    return max(busy_s)


def _by_device(plane: Any) -> list[float]:
    lines = list(plane.lines)
    lines = [line for line in lines if line.name == OPERATIONS_LINE] or lines
    seconds: dict[object, float] = defaultdict(float)
    for line in lines:
        for event in line.events:
            stats = dict(event.stats)
            name = str(stats.get(OPERATION, ""))
            if name and name.split(".")[0] not in CONTAINERS:
                seconds[stats.get(DEVICE)] += event.duration_ns / 1e9
    return list(seconds.values())
