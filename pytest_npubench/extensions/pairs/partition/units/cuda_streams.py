"""The units of `cuda-streams` and `cuda-devices`: torch eager in the GPU's role, CUDA graphs in the NPU's, on two
streams of one device or on two devices. Two streams of one device have multiprocessors of their own; where the driver
cannot split them they share all, and the units' names say so. Activations and results stay on that one device."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

from pytest_npubench.errors import DeviceUnavailableError
from pytest_npubench.extensions.pairs.partition.matmul import Matmul
from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena
from pytest_npubench.extensions.pairs.partition.units.cores import pin_to
from pytest_npubench.extensions.pairs.partition.units.cuda_unit import CudaGraphUnit, CudaUnit, Unfetched
from pytest_npubench.extensions.pairs.partition.units.layer_run import LayerUnits
from pytest_npubench.extensions.pairs.partition.units.sm_partition import split_streams
from pytest_npubench.extensions.pairs.partition.units.torch_unit import import_torch_with_cuda, tensor_of


def open_units(arguments: Mapping[str, Any]) -> LayerUnits:
    arena = SharedArena(arguments["arena_fd"])
    pin_to(arguments["cores"][0])
    second = 1 if arguments["pair"] == "cuda-devices" else 0
    torch = import_torch_with_cuda(second + 1)
    (gpu_stream, gpu_share), (npu_stream, npu_share) = ((None, ""), (None, "")) if second else _streams(torch)
    unfetched = None if second else Unfetched()
    gpu = CudaUnit(torch, 0, arguments["timeout_s"], gpu_stream, gpu_share, unfetched)
    npu = CudaGraphUnit(torch, second, arguments["timeout_s"], arena, npu_stream, npu_share, unfetched)
    return CudaUnits(gpu, npu, arguments, arena, pids={"host": os.getpid()})


class CudaUnits(LayerUnits):
    """Results that stayed on the device come into the arena when somebody asks where they are, and so do activations of
    layers, which run where both units share a device."""

    def tensor(self, name: str) -> Any:
        gpu = cast(CudaUnit, self._gpu)
        return super().tensor(name) if gpu.unfetched is None else gpu.tensor(self.store.view(name))

    def steps(self) -> AbstractContextManager[None]:
        return cast(CudaUnit, self._gpu).steps(cast(CudaGraphUnit, self._npu))

    def finish(self) -> None:
        cast(CudaUnit, self._gpu).finish()

    def operand_names(self, matmul: Matmul) -> tuple[str, str, str | None]:
        weight, activation, scales = super().operand_names(matmul)
        array, shared = self.store.view(activation), cast(CudaUnit, self._gpu).unfetched
        if shared is not None and (tensor := shared.shared(array)) is not None:
            tensor_of(self.torch, array).copy_(tensor)
        return weight, activation, scales

    def output_name(self, matmul: Matmul) -> str:
        cast(CudaUnit, self._gpu).fetch()
        return super().output_name(matmul)

    def unload(self) -> None:
        cast(CudaUnit, self._gpu).fetch()
        if (shared := cast(CudaUnit, self._gpu).unfetched) is not None:
            shared.tensors.clear()
        super().unload()


def _streams(torch: Any) -> tuple[tuple[Any, str], tuple[Any, str]]:
    """Returns a stream for each unit, and what it has of the device in words."""
    try:
        (first, num_first), (second, num_second) = split_streams(torch, 0)
    except DeviceUnavailableError as error:
        return (None, f", {error}"), (None, f", {error}")
    return (first, f", {num_first} multiprocessors"), (second, f", {num_second} multiprocessors")
