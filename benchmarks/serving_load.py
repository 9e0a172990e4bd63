"""The load that a utilisation is on a GPU of the hardware files, on the virtual clock: rate, decode batch, attainment.

    python benchmarks/serving_load.py                                  the files as they are
    python benchmarks/serving_load.py --at-once 6 --utilisation 0.7    another calibration and utilisation

The decode batch is its mean over the seconds of a run of chunked prefill, and its largest; `long` is a run of 400
requests, whose batch is the steady one. Worked example: 0.9 of 0.88 requests/s are 0.79.
"""

from __future__ import annotations

import argparse

import numpy as np

from pytest_npubench.campaign.served_load import block, lengths
from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.loop import serve
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.result import ServingResult
from pytest_npubench.serving.schedulers import make_scheduler
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.suites.scheduling.bench import CALIBRATION_ROUND, num_calibration_requests
from pytest_npubench.suites.scheduling.calibration import TTFT_REQUESTS
from pytest_npubench.suites.scheduling.plan import ServingPlan, serving_plans
from pytest_npubench.suites.scheduling.policies import served
from pytest_npubench.suites.scheduling.spec import LoadSpec

FILES = ("nvidia-a100", "nvidia-h100", "nvidia-h200")
NUM_LONG = 400


def run(plan: ServingPlan, load: LoadSpec, requests: tuple[ServingRequest, ...]) -> ServingResult:
    serving, spec = plan.serving, plan.spec
    executor = VirtualExecutor(
        plan.shape,
        spec,
        tensor_parallel=spec.tensor_parallel,
        dtype=serving.dtype,
        kv_capacity_tokens=serving.kv_capacity_tokens,
        block_size_tokens=serving.block_size_tokens,
    )
    scheduler = make_scheduler(
        "chunked",
        num_layers=executor.num_layers,
        kv_blocks=serving.kv_capacity_tokens // serving.block_size_tokens,
        block_size_tokens=serving.block_size_tokens,
        max_batch_size=serving.max_batch_size,
        **dict(served("chunked", plan, load).settings),
    )
    return serve(OpenLoad(requests), scheduler, executor, VirtualClock())


def batch(result: ServingResult) -> str:
    rows = np.array(result.log.num_decode)
    seconds = np.array(result.log.end_s) - np.array(result.log.start_s)
    return f"{float(rows @ seconds / seconds.sum()):.1f} ({rows.max()})"


def line(plan: ServingPlan, load: LoadSpec, num_at_once: int, utilisation: float) -> str:
    capacity = plan.serving.kv_capacity_tokens
    drawn = lengths(load.workload, num_at_once, CALIBRATION_ROUND, capacity)
    every = tuple(
        ServingRequest(id=index, arrival_s=0.0, prompt_tokens=prompt, output_tokens=output)
        for index, (prompt, output) in enumerate(drawn)
    )
    at_once = run(plan, load, every)
    full_rate = num_at_once / (at_once.ended_s - at_once.started_s)
    rate = utilisation * full_rate
    ran = [
        run(plan, load, block(load.workload, number, rate, round_index=0, max_total_tokens=capacity))
        for number in (plan.size.num_requests, NUM_LONG)
    ]
    attained = [np.mean([record.ttft_s <= TTFT_REQUESTS / full_rate for record in one.records]) for one in ran]
    return (
        f"| {plan.spec.name} | {plan.size.name} | {load.workload} | {num_at_once} | {full_rate:.2f} | {rate:.2f} | "
        f"{batch(at_once)} | {batch(ran[0])} | {batch(ran[1])} | {attained[0]:.2f} | {attained[1]:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--at-once", type=int)
    parser.add_argument("--utilisation", type=float)
    parser.add_argument("--num-requests", type=int)
    asked = parser.parse_args()
    specs = load_all([default_directory()])
    print("| file | profile | workload | at once | full rate | rate | batch at once | batch | long | attained | long |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name in FILES:
        for plan in serving_plans(specs[name], "nightly"):
            if plan.model == "qwen3-30b-a3b":
                for load in plan.loads:
                    number = asked.at_once or num_calibration_requests(plan)
                    print(line(plan, load, number, asked.utilisation or load.utilisation or 1.0), flush=True)


if __name__ == "__main__":
    main()
