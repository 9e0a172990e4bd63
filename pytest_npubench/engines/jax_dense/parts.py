"""Parts of the reference decoder in jax, each run alone: its operators, and the kernels of whole steps."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pytest_npubench.core.clock import perf_counter
from pytest_npubench.core.measurement import Phase
from pytest_npubench.core.parts import Part
from pytest_npubench.engines.jax_dense.kernel_trace import kernels_s
from pytest_npubench.engines.jax_dense.operators import DecoderOperators
from pytest_npubench.engines.static_buckets import StaticBuckets

TRACED_STEPS = 4


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
        """Of one step, the first of a batch left out."""
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
