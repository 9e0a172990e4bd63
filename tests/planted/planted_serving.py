"""The scheduling suite on the cost model of an H100, whose virtual clock a fault and the night's noise make slower.

$PLANTED names the fault. A policy's blocks take as long as the model says, times 0.3 % of noise between processes.
"""

from __future__ import annotations

import os
import random

import fake_device

from pytest_npubench.core.hardware_reader import default_directory
from pytest_npubench.extensions.planning.virtual.executor import VirtualExecutor
from pytest_npubench.plugin import selection
from pytest_npubench.serving.clock import VirtualClock
from pytest_npubench.suites.hardware_files import load_all
from pytest_npubench.suites.scheduling import bench
from pytest_npubench.suites.scheduling.reference_serving import TorchServing

PLANTED = os.environ.get("PLANTED", "")
SLOWER_POLICY = 1.5
MORE_LOADED = 1.0045  # what the scales of int8 weights weigh beside them


class NoisyClock(VirtualClock):
    """Whose seconds are longer by a factor of the process, and under the policy that a fault is planted in."""

    factor = 1.0
    noise = 1.0

    def advance(self, duration_s: float | None) -> float:
        return super().advance(None if duration_s is None else duration_s * self.factor * self.noise)


class Serving(bench.ServingBench):
    def _serve(self, point, requests):
        is_slower = PLANTED == "one_policy" and point.policy == "layered"
        NoisyClock.factor = SLOWER_POLICY if is_slower else 1.0
        return super()._serve(point, requests)


def executor(_: TorchServing, plan, __: str) -> VirtualExecutor:
    number = fake_device._count_engine()
    NoisyClock.noise = 1 + 0.003 * random.Random(f"{number}/serving").gauss(0.0, 1.0)
    made = VirtualExecutor(
        plan.shape,
        load_all([default_directory()])["nvidia-h100"],
        tensor_parallel=1,
        dtype="bf16",
        kv_capacity_tokens=plan.serving.kv_capacity_tokens,
        block_size_tokens=plan.serving.block_size_tokens,
    )
    if PLANTED == "more_bytes_of_experts":
        made._expert_bytes = int(made._expert_bytes * MORE_LOADED)
    return made


def install() -> None:
    """The device's own torch is the cost model's by name alone."""
    fake_device.FakeBackend.open_torch = lambda self, devices: self.open(devices, None)
    selection.torch_missing = lambda family: ""
    TorchServing.executor = executor
    bench.ServingBench = Serving
    bench.WallClock = NoisyClock
