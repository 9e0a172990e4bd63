"""The units of `host` and `cuda-host`: torch on one core or a CUDA device in the GPU's role, XLA in a process on a
second core in the NPU's, one shared memory.

torch takes any shape and writes its results in place. The XLA worker has a graph a shape, and its results are copied.
This module runs in the pair's process and pins it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.cores import pin_to
from pytest_npubench.extensions.pairs.partition.units.cuda_unit import CudaUnit
from pytest_npubench.extensions.pairs.partition.units.layer_run import LayerUnits
from pytest_npubench.extensions.pairs.partition.units.torch_unit import TorchUnit, import_torch_with_cuda
from pytest_npubench.extensions.pairs.partition.units.xla_worker import XlaWorker


def open_units(arguments: Mapping[str, Any]) -> LayerUnits:
    arena, timeout_s = SharedArena(arguments["arena_fd"]), arguments["timeout_s"]
    gpu_core, npu_core = arguments["cores"]
    pin_to(gpu_core)
    is_host = arguments["pair"] == "host"
    gpu = TorchUnit(gpu_core) if is_host else CudaUnit(import_torch_with_cuda(), 0, timeout_s)
    npu = XlaWorker(
        core=npu_core,
        arena=arena,
        kernels="pytest_npubench.extensions.pairs.partition.units.matmul_kernels",
        timeout_s=timeout_s,
    )
    return LayerUnits(gpu, npu, arguments, arena, pids={"host": os.getpid(), "xla": npu.pid})
