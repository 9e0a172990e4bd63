"""Parts of the reference decoder in jax, each run alone: its operators, and the kernels of whole steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jax
import numpy as np

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.core.measurement import Phase
from pytest_npubench.core.parts import Part
from pytest_npubench.engines.jax_dense.operators import DecoderOperators
from pytest_npubench.engines.static_buckets import StaticBuckets
from pytest_npubench.errors import MeasurementError

TRACED_STEPS = 4
OPERATION, DEVICE, OPERATIONS_LINE = "hlo_op", "device_ordinal", "XLA Ops"
CONTAINERS = ("while", "call", "conditional")


class DecoderParts:
    """engines.protocol.Parts."""

    def __init__(self, engine: StaticBuckets, make_operators: Callable[[], DecoderOperators]) -> None:
        self._engine, self._make_operators = engine, make_operators
        self._operators: DecoderOperators | None = None
        self._calls: dict[Part, Callable[[], None]] = {}

    def load(self, part: Part) -> None:
        """Compile ahead of time; what is there already stays."""
        if part.operator is None:
            self._engine.load((part.bucket,))
        elif part not in self._calls:
            self._operators = self._operators or self._make_operators()
            self._calls[part] = self._operators.call(part)

    def time(self, part: Part) -> float:
        if part.operator is None:
            return self._kernels_s(part)
        started_s = perf_counter()
        self._calls[part]()
        return perf_counter() - started_s

    def _kernels_s(self, part: Part) -> float:
        """The kernels' seconds of one step, the first of a batch left out."""
        engine, bucket = self._engine, part.bucket
        prompt = np.zeros(bucket, np.int32)

        def steps(number: int) -> None:
            for _ in range(number):
                if part.phase is Phase.PREFILL:
                    engine.prefill_row(bucket, 0, prompt)
                else:
                    engine.decode_step(bucket)

        engine.begin(bucket)
        steps(1)
        seconds = kernels_s(lambda: steps(TRACED_STEPS)) / TRACED_STEPS
        engine.end(bucket)
        return seconds


def kernels_s(call: Callable[[], object]) -> float:
    """Seconds of all kernels of a call, on the busiest device, by jax's profiler. A kernel is an event that names its
    HLO operation. Loops and calls are left out, since what they run has events of its own. Of a line "XLA Ops", which a
    TPU and a GPU have, that line alone counts: others repeat it. Raises MeasurementError without kernels or a trace."""
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
