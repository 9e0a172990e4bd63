"""What the harness adds to one sample and to one round, beside a bare loop of perf_counter and block_until_ready.

    python benchmarks/sample_overhead.py

Both loops run the same compiled function in alternating blocks, so drift falls on both. The last lines time a function
of plain Python under a tracer, as coverage installs one, by a bare loop and by the harness, and a coroutine that does
nothing.
"""

import statistics
import sys
import time

import jax
import jax.numpy as jnp

from pytest_npubench.backends import backend
from pytest_npubench.backends.telemetry.disturbance import DisturbanceLimits
from pytest_npubench.campaign.callable_timing import time_callable
from pytest_npubench.campaign.watch import Watch

BLOCKS, CALLS = 41, 500


def main() -> None:
    host = backend("cpu")
    runtime = host.open(host.probe(1).devices, None)
    argument = jnp.ones(8)
    function = jax.jit(lambda x: x + 1).lower(argument).compile()
    bare, harness, several, bare_wall, harness_wall = [], [], [], [], []
    for _ in range(BLOCKS):
        started_s = time.perf_counter()
        bare.append(statistics.median(_bare(lambda: function(argument).block_until_ready())))
        middle_s = time.perf_counter()
        harness.append(statistics.median(_harness(runtime, function, argument, iterations=1).samples_s))
        bare_wall.append(middle_s - started_s)
        harness_wall.append(time.perf_counter() - middle_s)
        calibrated = _harness(runtime, function, argument)
        several.append(statistics.median(calibrated.samples_s))
    print(f"bare sample: {statistics.median(bare) * 1e6:.2f} us")
    print(f"harness adds {_added(bare, harness)} inside a sample of one call")
    print(f"and {_added(bare, several)} to a call where {calibrated.iterations} are a sample")
    beside_s = statistics.median(b - a for a, b in zip(bare_wall, harness_wall, strict=True))
    print(f"a case of {CALLS} samples takes {beside_s * 1e3:.0f} ms more in all: one full collection of garbage before")
    _under_a_tracer(runtime)
    print(f"a coroutine that does nothing: {_median_us(_harness(runtime, _coroutine)):.2f} us, awaited")
    round_s = _watching(runtime)
    print(f"reading the device around a round: {round_s * 1e3:.2f} ms (limit 1 ms), {round_s:.2%} of a 1 s round")


def _watching(runtime):
    took = []
    with Watch(runtime, DisturbanceLimits()) as watch:
        for _ in range(BLOCKS):
            started_s = time.perf_counter()
            watch.begin()
            watch.end()
            took.append(time.perf_counter() - started_s)
    return statistics.median(took)


def _added(bare, harness):
    """In microseconds and as a ratio, block by block."""
    added_s = statistics.median(b - a for a, b in zip(bare, harness, strict=True))
    return f"{added_s * 1e6:+.2f} us, x{1 + added_s / statistics.median(bare):.2f},"


def _under_a_tracer(runtime):
    bare, harness = [], []
    for _ in range(BLOCKS):
        free_us = statistics.median(_bare(_python)) * 1e6, _median_us(_harness(runtime, _python))
        sys.settrace(_tracer)
        try:
            traced_us = statistics.median(_bare(_python)) * 1e6, _median_us(_harness(runtime, _python))
        finally:
            sys.settrace(None)
        bare.append(traced_us[0] / free_us[0])
        harness.append(traced_us[1] / free_us[1])
    print(
        f"a tracer lengthens plain Python x{statistics.median(bare):.1f} in a bare loop, "
        f"x{statistics.median(harness):.2f} in the harness"
    )


def _tracer(frame, event, argument):
    return _tracer


def _python():
    total = 0
    for number in range(200):
        total += number % 7
    return total


async def _coroutine():
    pass


def _median_us(timing):
    return statistics.median(timing.samples_s) * 1e6


def _bare(call):
    samples = []
    for _ in range(CALLS):
        started_s = time.perf_counter()
        call()
        samples.append(time.perf_counter() - started_s)
    return samples


def _harness(runtime, function, *arguments, iterations=None):
    return time_callable(
        function,
        arguments,
        {},
        runtime.synchronize,
        rounds=CALLS,
        max_warmup=3,
        count_compiles=lambda: runtime.num_process_compiles,
        iterations=iterations,
    )


if __name__ == "__main__":
    main()
