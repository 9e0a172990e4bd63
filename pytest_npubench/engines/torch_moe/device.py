"""The device by name, dtypes by name, and errors that say what did not fit."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pytest_npubench.errors import ConfigError, DeviceUnavailableError, MeasurementError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# of malloc.h
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
NEVER = -1


def open_device(name: str) -> torch.device:
    """Returns the torch device called "cpu", "cuda" or "cuda:N".

    Raises ConfigError for another name and DeviceUnavailableError where there is no such device.
    """
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()) or (kind == "cpu" and index):
        raise ConfigError(f"device is {name!r}; want cpu, cuda or cuda:N")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise DeviceUnavailableError(f"{name}: torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices")
    return torch.device(name)


def torch_dtype(name: str) -> torch.dtype:
    """Returns the dtype of weights and activations. Raises ConfigError with the names there are."""
    if name not in DTYPES:
        raise ConfigError(f"dtype is {name!r}; want one of {', '.join(DTYPES)}")
    return DTYPES[name]


def check_fits(what: str, num_bytes: int, device: torch.device) -> None:
    """Raises MeasurementError where `what` cannot fit even in an empty device.

    A CPU lends more memory than it has and then kills whoever uses it, so it must be asked first.
    """
    if device.type == "cuda":
        total_bytes = torch.cuda.get_device_properties(device).total_memory
    else:
        total_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_bytes > total_bytes:
        raise MeasurementError(
            f"{what} takes {num_bytes / 1e9:.1f} GB; {device} has {total_bytes / 1e9:.1f} GB in all: "
            "take a smaller shape, dtype or KV cache"
        )


@contextmanager
def memory_for(what: str, device: torch.device) -> Iterator[None]:
    """An allocation that fails inside becomes a MeasurementError naming `what` and what the allocator said."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        allocated_gb = torch.cuda.memory_allocated(device) / 1e9 if device.type == "cuda" else 0.0
        raise MeasurementError(
            f"out of memory on {device} ({allocated_gb:.1f} GB held by tensors) for {what}: {_reason(error)}"
        ) from error
    except RuntimeError as error:
        # torch has no class of its own for a CPU allocator that gives up
        if "allocate memory" not in str(error):
            raise
        raise MeasurementError(f"out of memory on {device} for {what}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return str(error).splitlines()[0]


def keep_freed_memory() -> None:
    """Lets glibc keep the memory that is freed, as allocators for accelerators do, until the process ends.

    glibc maps each block of more than 32 MiB afresh and gives it back when it is freed, and cuts its heap where much of
    the top is free; the kernel then zeroes every page again. The states of 8,000 prompt tokens are such blocks, those
    of 500 are not: it would be counted as a price of large batches, and of the first ones of each size.

    Worked numbers: a layer of small-moe takes 7,920 prompt tokens in 364 ms where 99,000 pages are mapped each time,
    and in 277 ms where next to none are (benchmarks/kept_memory.py).
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, NEVER)
