"""The units of `cuda-streams` and `cuda-devices`: torch eager in the GPU's role, CUDA graphs in the NPU's, on two
streams of one device or on two devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.cores import pin_to
from pytest_npubench.extensions.pairs.partition.units.cuda_unit import CudaGraphUnit, CudaUnit
from pytest_npubench.extensions.pairs.partition.units.layer_run import LayerUnits
from pytest_npubench.extensions.pairs.partition.units.torch_unit import import_torch_with_cuda


def open_units(arguments: Mapping[str, Any]) -> LayerUnits:
    arena = SharedArena(arguments["arena_fd"])
    pin_to(arguments["cores"][0])
    second = 1 if arguments["pair"] == "cuda-devices" else 0
    torch = import_torch_with_cuda(second + 1)
    gpu = CudaUnit(torch, 0, arguments["timeout_s"])
    npu = CudaGraphUnit(torch, second, arguments["timeout_s"], arena)
    return LayerUnits(gpu, npu, arguments, arena, pids={"host": os.getpid()})
