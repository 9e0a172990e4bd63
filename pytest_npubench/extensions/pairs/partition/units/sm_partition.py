"""Two disjoint parts of a CUDA device's multiprocessors, a stream in each (green contexts: CUDA driver API, 12.4 on).

Work on streams of one context may take any multiprocessor, so that one unit's kernels wait for the other's; streams of
two green contexts have multiprocessors of their own. torch's GreenContext takes the first so many each time, and two of
them would share these: so the driver is asked to split the device once, into a part and what remains.

Worked number: 132 multiprocessors of an H100 are split into 72 (the next multiple of 8 from 66 on) and 60.
"""

from __future__ import annotations

import ctypes
from typing import Any

from pytest_npubench.errors import DeviceUnavailableError

RESOURCE_BYTES = 144  # of a CUdevResource, whose multiprocessors are counted at COUNT_AT
COUNT_AT = 96
SM_RESOURCE = 1  # CU_DEV_RESOURCE_TYPE_SM
DEFAULT_STREAM = 1  # CU_GREEN_CTX_DEFAULT_STREAM, which a green context must have
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING

Resource = ctypes.c_char * RESOURCE_BYTES


def split_streams(torch: Any, device: int, driver: Any = None) -> tuple[tuple[Any, int], tuple[Any, int]]:
    """Returns a stream with about half of the device's multiprocessors and one with the others, each with their number.

    They live as long as the process. Raises DeviceUnavailableError where the driver cannot split them."""
    torch.cuda.init()
    asked = _Driver(driver or ctypes.CDLL("libcuda.so.1"))
    handle, groups = ctypes.c_int(), ctypes.c_uint(1)
    whole, part, rest = Resource(), Resource(), Resource()
    asked.call("cuDeviceGet", ctypes.byref(handle), device)
    asked.call("cuDeviceGetDevResource", handle, ctypes.byref(whole), SM_RESOURCE)
    half = ctypes.c_uint(_count(whole) // 2)
    split = (ctypes.byref(part), ctypes.byref(groups), ctypes.byref(whole), ctypes.byref(rest), ctypes.c_uint(0), half)
    asked.call("cuDevSmResourceSplitByCount", *split)
    first, second = ((_stream(torch, asked, handle, device, one), _count(one)) for one in (part, rest))
    return first, second


class _Driver:
    def __init__(self, library: Any) -> None:
        self._library = library

    def call(self, name: str, *arguments: Any) -> None:
        try:
            code = getattr(self._library, name)(*arguments)
        except AttributeError:
            code = "unknown to this driver, which is older than CUDA 12.4"
        if code != 0:
            raise DeviceUnavailableError(f"multiprocessors cannot be split: {name}: {code}")


def _stream(torch: Any, asked: _Driver, handle: ctypes.c_int, device: int, resource: Any) -> Any:
    description, context, stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    asked.call("cuDevResourceGenerateDesc", ctypes.byref(description), ctypes.byref(resource), ctypes.c_uint(1))
    asked.call("cuGreenCtxCreate", ctypes.byref(context), description, handle, ctypes.c_uint(DEFAULT_STREAM))
    asked.call("cuGreenCtxStreamCreate", ctypes.byref(stream), context, ctypes.c_uint(NON_BLOCKING), 0)
    return torch.cuda.ExternalStream(stream.value, device=torch.device("cuda", device))


def _count(resource: Any) -> int:
    return ctypes.c_uint.from_buffer(resource, COUNT_AT).value
