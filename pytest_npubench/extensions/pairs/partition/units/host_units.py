"""The units of the `host` pair: torch on one core, XLA in a process of its own on another, one shared memory.

torch stands for the GPU: any shape, results written in place. The XLA worker stands for the NPU: a graph a shape,
results copied. This module runs in the pair's process and pins it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.cores import pin_to
from pytest_npubench.extensions.pairs.partition.units.layer_run import LayerUnits
from pytest_npubench.extensions.pairs.partition.units.torch_unit import TorchUnit
from pytest_npubench.extensions.pairs.partition.units.xla_worker import XlaWorker


def open_units(arguments: Mapping[str, Any]) -> LayerUnits:
    arena = SharedArena(arguments["arena_fd"])
    gpu_core, npu_core = arguments["cores"]
    pin_to(gpu_core)
    gpu = TorchUnit(gpu_core)
    npu = open_xla_worker(npu_core, arguments, arena)
    return LayerUnits(gpu, npu, arguments, arena, pids={"host": os.getpid(), "xla": npu.pid})


def open_xla_worker(core: int, arguments: Mapping[str, Any], arena: SharedArena) -> XlaWorker:
    return XlaWorker(
        core=core,
        arena=arena,
        kernels="pytest_npubench.extensions.pairs.partition.units.matmul_kernels",
        timeout_s=arguments["timeout_s"],
    )
