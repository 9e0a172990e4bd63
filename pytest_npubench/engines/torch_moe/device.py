"""The device by name, dtypes by name, and errors that say what did not fit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pytest_npubench.errors import ConfigError, DeviceUnavailableError, MeasurementError

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def open_device(name: str) -> torch.device:
    """The torch device called "cpu", "cuda" or "cuda:N".

    Raises ConfigError for another name and DeviceUnavailableError where there is no such device.
    """
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()) or (kind == "cpu" and index):
        raise ConfigError(f"device is {name!r}; want cpu, cuda or cuda:N")
    if kind == "cuda" and int(index or 0) >= torch.cuda.device_count():
        raise DeviceUnavailableError(f"{name}: torch {torch.__version__} sees {torch.cuda.device_count()} CUDA devices")
    return torch.device(name)


def torch_dtype(name: str) -> torch.dtype:
    """The dtype of weights and activations. Raises ConfigError with the names there are."""
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
