"""Which GPU, or which MIG instance of one, CUDA means by a device number of this process: its UUID, from the driver.

The numbers of CUDA mean what CUDA_DEVICE_ORDER and CUDA_VISIBLE_DEVICES make of them (CUDA programming guide, CUDA
environment variables), so nothing is concluded from them. cuDeviceGetUuid_v2 is the instance's UUID where the GPU is in
MIG mode, cuDeviceGetUuid that of the whole GPU (CUDA driver API, device management); both are 16 bytes, and NVML writes
them with GPU- or MIG- in front. No context is made, so nothing is taken of the GPU.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable
from typing import Any

LIBRARY = "libcuda.so.1"


def identity(ordinal: int | None, load: Callable[[str], Any] = ctypes.CDLL) -> tuple[str | None, str]:
    """ "GPU-8932f937-...", or "MIG-..." for an instance, and an empty text; or None and why nobody knows it."""
    if ordinal is None or ordinal < 0:
        return None, "jax does not say which device of CUDA it is"
    try:
        driver = load(LIBRARY)
        _call(driver, "cuInit", 0)
        device = ctypes.c_int()
        _call(driver, "cuDeviceGet", ctypes.byref(device), ordinal)
        whole = _uuid(driver, "cuDeviceGetUuid", device)
        part = _uuid(driver, "cuDeviceGetUuid_v2", device) if hasattr(driver, "cuDeviceGetUuid_v2") else whole
    except (OSError, AttributeError) as error:
        return None, f"the CUDA driver does not tell its UUID: {error}"
    if not part.int:
        return None, "the CUDA driver tells no UUID of it"
    return (f"GPU-{whole}" if part == whole else f"MIG-{part}"), ""


def _uuid(driver: Any, name: str, device: ctypes.c_int) -> uuid.UUID:
    found = (ctypes.c_ubyte * 16)()
    _call(driver, name, ctypes.byref(found), device)
    return uuid.UUID(bytes=bytes(found))


def _call(driver: Any, name: str, *arguments: Any) -> None:
    """Raises OSError where the driver answers anything but CUDA_SUCCESS, AttributeError where it has no such call."""
    if status := getattr(driver, name)(*arguments):
        raise OSError(f"{name} returned error {status}")
