"""The processors that a pair's processes are pinned to, one a unit, and the last cache between them and memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pytest_npubench.core.bounds import ON_CHIP_BYTES
from pytest_npubench.errors import DeviceUnavailableError

CACHES = Path("/sys/devices/system/cpu")


def pin_to(core: int) -> None:
    """Keep this process on one core. Raises DeviceUnavailableError where the system does not let it."""
    try:
        os.sched_setaffinity(0, {core})
    except (OSError, AttributeError) as error:
        raise DeviceUnavailableError(f"cannot pin process {os.getpid()} to core {core}: {error}") from None


def two_cores(cores: tuple[int, int] | None = None) -> tuple[int, int]:
    """Returns the cores for two units: `cores`, else the last two this process may use (the first ones serve the
    system's interrupts). Raises DeviceUnavailableError where there are fewer than two."""
    if not hasattr(os, "sched_getaffinity"):
        raise DeviceUnavailableError(
            f"a pair of units pins its processes to cores, which {sys.platform} does not offer"
        )
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        raise DeviceUnavailableError(f"a pair of units needs 2 cores; this process may use {len(usable)} ({usable})")
    if cores is None:
        return usable[-2], usable[-1]
    if len(set(cores)) < 2 or not set(cores) <= set(usable):
        raise DeviceUnavailableError(f"cores {cores}: want two different ones of {usable}")
    return cores


def last_cache_bytes(core: int, caches: Path = CACHES) -> int:
    """Returns the largest cache of a core, as the system tells; where it does not, what no chip exceeds."""
    sizes = (caches / f"cpu{core}" / "cache").glob("index*/size")
    return max((int(size.read_text().strip().removesuffix("K")) * 1024 for size in sizes), default=ON_CHIP_BYTES)
