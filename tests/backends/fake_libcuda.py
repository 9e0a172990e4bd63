"""A FAKE of libcuda's device management: GPUs counted as the CUDA programming guide says (environment variables).

Without CUDA_VISIBLE_DEVICES the fastest come first, or with CUDA_DEVICE_ORDER=PCI_BUS_ID in the order of the bus; with
it, those that it names, by number, UUID or the beginning of a UUID, in its order and up to the first that is none.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

SUCCESS, NOT_INITIALIZED, INVALID_DEVICE = 0, 3, 101  # CUresult


@dataclass(frozen=True)
class FakeGpu:
    """`instances` are the UUIDs of its MIG instances, of which CUDA shows the first, or the one that is asked for."""

    uuid: uuid.UUID
    speed: float
    instances: tuple[uuid.UUID, ...] = ()


class FakeLibcuda:
    """`gpus` in the order of the bus."""

    def __init__(self, gpus: tuple[FakeGpu, ...], environment: Mapping[str, str]) -> None:
        self.seen = _seen(gpus, environment)
        self.started = False

    def cuInit(self, flags: int) -> int:
        self.started = True
        return SUCCESS

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        if not self.started:
            return NOT_INITIALIZED
        device._obj.value = 100 + ordinal  # a handle, which is no ordinal
        return SUCCESS if ordinal < len(self.seen) else INVALID_DEVICE

    def cuDeviceGetUuid(self, found: Any, device: ctypes.c_int) -> int:
        found._obj[:] = self.seen[device.value - 100][0].bytes
        return SUCCESS

    def cuDeviceGetUuid_v2(self, found: Any, device: ctypes.c_int) -> int:
        found._obj[:] = self.seen[device.value - 100][1].bytes
        return SUCCESS


def _seen(gpus: tuple[FakeGpu, ...], environment: Mapping[str, str]) -> list[tuple[uuid.UUID, uuid.UUID]]:
    """(the whole GPU's UUID, that of what runs) of each device that CUDA shows."""
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID"
    ordered = gpus if by_bus else tuple(sorted(gpus, key=lambda gpu: -gpu.speed))
    shown = environment.get("CUDA_VISIBLE_DEVICES")
    if shown is None:
        return [(gpu.uuid, gpu.instances[0] if gpu.instances else gpu.uuid) for gpu in ordered]
    seen = []
    for name in map(str.strip, shown.split(",")):
        if name.isdigit() and int(name) < len(ordered):
            gpu = ordered[int(name)]
            seen.append((gpu.uuid, gpu.instances[0] if gpu.instances else gpu.uuid))
            continue
        whole = [(gpu.uuid, gpu.uuid) for gpu in gpus if name[4:] and f"GPU-{gpu.uuid}".startswith(name)]
        parts = [(gpu.uuid, part) for gpu in gpus for part in gpu.instances if f"MIG-{part}" == name]
        if len(found := whole + parts) != 1:
            break
        seen += found
    return seen
