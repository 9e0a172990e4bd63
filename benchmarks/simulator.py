"""How fast the virtual clock runs: simulated requests a second on one core, and how far ahead of real time that is.

    python benchmarks/simulator.py [num_requests]

qwen3-30b-a3b on two H100s, arXiv-like lengths, Poisson arrivals at 1.3 requests/s. Sampling the router, once a process,
is timed apart. Then ten times as many ShareGPT-like requests on qwen3-8b, one H100, chunked prefill, by the processor's
time.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.engines.kv_capacity import default_kv_capacity_tokens
from pytest_npubench.engines.shapes import decoder_shape
from pytest_npubench.extensions.planning.cli.simulation import System, arriving, simulate
from pytest_npubench.extensions.planning.virtual.router import sampled_router
from pytest_npubench.serving.metrics import summarize
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.workloads import workload

POLICIES = ("static", "continuous", "chunked", "layered", "hybrid", "disaggregated")
RATE_PER_S = 1.3
NUM_REPEATS = 3
CHAT_RATES_PER_S = (2.0, 10.0, 15.0, 20.0, 25.0)


def main(num_requests: int) -> None:
    shape, spec = decoder_shape("qwen3-30b-a3b"), load_all([default_directory()])["nvidia-h100"]
    capacity = default_kv_capacity_tokens(shape, spec, tensor_parallel=2, dtype="bf16")
    system = System(shape=shape, spec=spec, tensor_parallel=2, dtype="bf16", kv_capacity_tokens=capacity, seed=0)
    lengths = workload("layered-arxiv").sample(num_requests, seed=0, max_total_tokens=capacity // 8)
    requests = arriving(lengths.requests, rate_per_s=RATE_PER_S, cv=None, seed=0)
    router_s = _seconds(lambda: sampled_router(shape, 0))
    print(f"router: {router_s:.3f} s, sampled once a process, not counted below")
    print("policy         requests/s  iterations/s  us/iteration  times real time  metrics (s)")
    for policy in POLICIES:
        took_s = []
        for _ in range(NUM_REPEATS):
            started_s = time.perf_counter()
            result = simulate(system, policy, {}, requests)
            took_s.append(time.perf_counter() - started_s)
        median_s, iterations = statistics.median(took_s), len(result.log)
        metrics_s = _seconds(lambda: summarize(result, num_experts=shape.num_experts))  # noqa: B023, called at once
        print(
            f"{policy:<14} {num_requests / median_s:>10,.0f} {iterations / median_s:>13,.0f} "
            f"{median_s / iterations * 1e6:>13.1f} {result.ended_s / median_s:>16,.0f} {metrics_s:>12.3f}"
        )

    chat(10 * num_requests)


def chat(num_requests: int) -> None:
    shape, spec = decoder_shape("qwen3-8b"), load_all([default_directory()])["nvidia-h100"]
    capacity = default_kv_capacity_tokens(shape, spec, tensor_parallel=1, dtype="bf16")
    system = System(shape=shape, spec=spec, tensor_parallel=1, dtype="bf16", kv_capacity_tokens=capacity, seed=0)
    lengths = workload("lens-sharegpt").sample(num_requests, seed=0, max_total_tokens=capacity // 8)
    print("arriving/s  requests a second of the processor")
    for rate_per_s in CHAT_RATES_PER_S:
        requests = arriving(lengths.requests, rate_per_s=rate_per_s, cv=None, seed=0)
        took_s = []
        for _ in range(NUM_REPEATS):
            started_s = time.process_time()
            simulate(system, "chunked", {}, requests)
            took_s.append(time.process_time() - started_s)
        print(f"{rate_per_s:>10g} {num_requests / min(took_s):>12,.0f}")


def _seconds(call: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    call()
    return time.perf_counter() - started_s


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
