"""The units of the `cuda-host` pair: a CUDA device in the GPU's role, XLA on one host core in the NPU's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.cores import pin_to
from pytest_npubench.extensions.pairs.partition.units.cuda_unit import CudaUnit
from pytest_npubench.extensions.pairs.partition.units.host_units import open_xla_worker
from pytest_npubench.extensions.pairs.partition.units.layer_run import LayerUnits
from pytest_npubench.extensions.pairs.partition.units.torch_unit import import_torch_with_cuda


def open_units(arguments: Mapping[str, Any]) -> LayerUnits:
    arena = SharedArena(arguments["arena_fd"])
    host_core, npu_core = arguments["cores"]
    pin_to(host_core)
    gpu = CudaUnit(import_torch_with_cuda(), 0, arguments["timeout_s"])
    npu = open_xla_worker(npu_core, arguments, arena)
    return LayerUnits(gpu, npu, arguments, arena, pids={"host": os.getpid(), "xla": npu.pid})
