"""What the harness adds to one sample and to one round, beside a bare loop of perf_counter and block_until_ready.

    python benchmarks/sample_overhead.py

Both loops run the same compiled function in alternating blocks, so drift falls on both.
"""

import statistics
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
    bare, harness, bare_wall, harness_wall = [], [], [], []
    for _ in range(BLOCKS):
        started_s = time.perf_counter()
        bare.append(statistics.median(_bare(function, argument)))
        middle_s = time.perf_counter()
        harness.append(statistics.median(_harness(runtime, function, argument)))
        bare_wall.append((middle_s - started_s) / CALLS)
        harness_wall.append((time.perf_counter() - middle_s) / CALLS)
    inside_s = statistics.median(b - a for a, b in zip(bare, harness, strict=True))
    beside_s = statistics.median(b - a for a, b in zip(bare_wall, harness_wall, strict=True))
    print(f"bare sample: {statistics.median(bare) * 1e6:.2f} us")
    print(f"harness adds {inside_s * 1e6:+.2f} us inside a sample, x{1 + inside_s / statistics.median(bare):.2f}")
    print(f"and {beside_s * 1e6:+.2f} us a sample in all, warm-up included (limit 5 us)")
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


def _bare(function, argument):
    samples = []
    for _ in range(CALLS):
        started_s = time.perf_counter()
        function(argument).block_until_ready()
        samples.append(time.perf_counter() - started_s)
    return samples


def _harness(runtime, function, argument):
    return time_callable(
        function,
        (argument,),
        {},
        runtime.synchronize,
        rounds=CALLS,
        max_warmup=3,
        count_compiles=lambda: runtime.num_process_compiles,
    ).samples_s


if __name__ == "__main__":
    main()
