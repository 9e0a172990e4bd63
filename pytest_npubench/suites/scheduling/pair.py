"""Prefill and decode in a process each, over the hardware that the other policies have as one device.

The engine of this process computes with as many threads as it has processors; the two processes share these out,
pinned, and the KV cache with them. Weights are in both, as on two accelerators. Worked example: an engine of 2 threads
with a KV cache of 16,384 tokens becomes two of 1 thread and 8,192 tokens, on one processor each.

The processes live as long as a block: nothing of them takes time from what is measured in between.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.serving.disaggregated import DisaggregatedResult, serve_disaggregated
from pytest_npubench.serving.load import OpenLoad
from pytest_npubench.serving.request import ServingRequest
from pytest_npubench.serving.schedulers.disaggregated import DisaggregatedScheduler
from pytest_npubench.serving.two_devices import TwoDevices
from pytest_npubench.serving.two_processes import ProcessPair
from pytest_npubench.suites.scheduling.plan import ServingPlan
from pytest_npubench.suites.scheduling.points import ServedPoint

POLICY = DisaggregatedScheduler.name
NUM_DEVICES = DisaggregatedScheduler.num_devices


def kv_tokens(plan: ServingPlan) -> int:
    """Returns the KV cache of each of the two, in whole blocks."""
    block_size = plan.serving.block_size_tokens
    return plan.serving.kv_capacity_tokens // NUM_DEVICES // block_size * block_size


def open_pair(plan: ServingPlan, device: str) -> ProcessPair:
    """Returns the two processes, to be entered. Raises DeviceUnavailableError where they cannot share the hardware
    out."""
    if device != "cpu":
        raise DeviceUnavailableError(
            f"policy {POLICY} is compared over equal hardware: on {device} the other policies would have both devices "
            "as one, and this engine does not split a model over two; want cpu"
        )
    from pytest_npubench.engines.torch_moe.executor import executor_of_threads, num_threads  # torch, where it is needed

    cores = split_cores(num_threads())
    settings = {
        "device": device,
        "dtype": plan.serving.dtype,
        "kv_capacity_tokens": kv_tokens(plan),
        "block_size_tokens": plan.serving.block_size_tokens,
    }
    prefill, decode = (partial(executor_of_threads, len(own), plan.shape, settings) for own in cores)
    return ProcessPair(prefill, decode, cores=cores)


def split_cores(num_threads: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the processors of the prefill and of the decode process, num_threads in all; of an odd number prefill has
    one more. Raises DeviceUnavailableError below two, and where the system cannot pin a process."""
    if not hasattr(os, "sched_getaffinity"):
        raise DeviceUnavailableError("this system cannot pin a process to processors; policy disaggregated needs that")
    lent = sorted(os.sched_getaffinity(0))[:num_threads]
    if len(lent) < NUM_DEVICES or len(lent) < num_threads:
        raise DeviceUnavailableError(
            f"the engine computes with {num_threads} threads on {len(os.sched_getaffinity(0))} processors; two "
            "processes over the same hardware want at least 2 threads (OMP_NUM_THREADS) and a processor for each"
        )
    half = -(-num_threads // NUM_DEVICES)
    return tuple(lent[:half]), tuple(lent[half:])


@contextmanager
def server_on(
    opened: AbstractContextManager[TwoDevices],
    plan: ServingPlan,
    point: ServedPoint,
    warm_up: Sequence[ServingRequest],
) -> Iterator[partial[DisaggregatedResult]]:
    """Serves requests on two devices that have served those of `warm_up` first."""
    with opened as devices:
        serve = partial(_serve, devices, plan, point)
        serve(warm_up)
        yield serve


def _serve(
    devices: TwoDevices, plan: ServingPlan, point: ServedPoint, requests: Sequence[ServingRequest]
) -> DisaggregatedResult:
    scheduler = DisaggregatedScheduler(
        num_layers=plan.shape.num_layers,
        kv_blocks=kv_tokens(plan) // plan.serving.block_size_tokens,
        block_size_tokens=plan.serving.block_size_tokens,
        max_batch_size=plan.serving.max_batch_size,
        **dict(point.settings),
    )
    return serve_disaggregated(OpenLoad(requests), scheduler, devices)
