"""How many iterations a second the scheduler and the loop run, in processor time, with an executor that does nothing.

    python benchmarks/serving_loop.py [num_requests]

The load is arXiv-like (log-normal lengths with the mean and spread of Layered Prefill's Table 4) at a rate near what
the made-up iteration times allow; the second half runs out of KV blocks on purpose. Nothing else is measured here.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.iteration import IterationOutcome, IterationPlan
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler

NUM_LAYERS = 48
BLOCK_SIZE_TOKENS = 16
AMPLE_BLOCKS = 60_000
FEW_BLOCKS = 8_000
POLICIES = ("static", "continuous", "chunked", "layered", "hybrid")


class NothingRuns:
    """Every iteration takes 18 ms, and 18 us for each prompt token that runs through all layers."""

    num_layers = NUM_LAYERS
    block_size_tokens = BLOCK_SIZE_TOKENS
    kv_capacity_tokens = AMPLE_BLOCKS * BLOCK_SIZE_TOKENS

    def __init__(self) -> None:
        self._decode_only = IterationOutcome(duration_s=0.018)

    def begin(self, request: int, prompt_tokens: int, output_tokens: int) -> None:
        pass

    def end(self, request: int) -> None:
        pass

    def run(self, plan: IterationPlan) -> IterationOutcome:
        token_layers = 0
        for group, rows in plan.passes:
            for row in rows:
                token_layers += row.num_tokens * (group.stop - group.first)
        if not token_layers:
            return self._decode_only
        return IterationOutcome(duration_s=0.018 + 18e-6 * token_layers / NUM_LAYERS)


def lognormal(rng: np.random.Generator, mean: float, std: float, number: int) -> list[int]:
    variance = np.log1p((std / mean) ** 2)
    drawn = rng.lognormal(np.log(mean) - variance / 2, np.sqrt(variance), number)
    return [int(length) for length in np.clip(drawn, 1, 32_000)]


def load(num_requests: int, rate_per_s: float) -> list[ServingRequest]:
    rng = np.random.default_rng(0)
    times_s = np.cumsum(rng.exponential(1 / rate_per_s, num_requests)).tolist()
    lengths = zip(lognormal(rng, 9194, 5754, num_requests), lognormal(rng, 231, 104, num_requests), strict=True)
    return [
        ServingRequest(id=index, arrival_s=at_s, prompt_tokens=prompt, output_tokens=output)
        for index, (at_s, (prompt, output)) in enumerate(zip(times_s, lengths, strict=True))
    ]


def timed(policy: str, requests: list[ServingRequest], kv_blocks: int) -> tuple[float, ServingResult]:
    scheduler = make_scheduler(policy, num_layers=NUM_LAYERS, kv_blocks=kv_blocks, block_size_tokens=BLOCK_SIZE_TOKENS)
    started_s = time.process_time()
    result = serve(OpenLoad(requests), scheduler, NothingRuns(), VirtualClock())
    return time.process_time() - started_s, result


def main(num_requests: int) -> None:
    requests = load(num_requests, rate_per_s=2.0)
    for kv_blocks in (AMPLE_BLOCKS, FEW_BLOCKS):
        print(f"{num_requests:,} requests, {kv_blocks:,} KV blocks of {BLOCK_SIZE_TOKENS} tokens")
        for policy in POLICIES:
            seconds, result = timed(policy, requests, kv_blocks)
            iterations = len(result.log)
            preemptions = sum(record.num_preemptions for record in result.records)
            print(
                f"  {policy:10} {iterations:9,} iterations {seconds:5.2f} CPU s {iterations / seconds:8,.0f} a second "
                f"{1e6 * seconds / iterations:5.1f} us each {num_requests / seconds:7,.0f} requests/s "
                f"mean decode batch {sum(result.log.num_decode) / iterations:5.1f} preemptions {preemptions:,}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
