"""XLA's worker threads on a processor, each kept to a core of its own.

A Linux kernel wakes a thread beside the one that woke it. After some 100 ms of decode steps, which one thread computes,
or after a pause, XLA's workers so share one core with their caller for tens of milliseconds while the others are idle:
on two cores a prefill of 1,024 tokens takes half as long again, and up to twice (docs/measurements). Where workers
have cores of their own, a prefill takes much the same whatever ran before it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

THREADS = Path("/proc/self/task")
WORKER = "XLAEigen"  # in the names of the threads that compute, as jaxlib 0.10 gives them


def pin_workers() -> int:
    """Gives each worker a core and returns how many have one: 0 on one core, or where threads have no names."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(cores) < 2:
        return 0
    pinned = 0
    for thread in _workers():
        with suppress(OSError):  # it has ended
            os.sched_setaffinity(thread, {cores[pinned % len(cores)]})
            pinned += 1
    return pinned


def _workers() -> list[int]:
    thread_ids = []
    for folder in THREADS.glob("[0-9]*"):
        with suppress(OSError):
            if WORKER in (folder / "comm").read_text(encoding="utf-8", errors="replace"):
                thread_ids.append(int(folder.name))
    return sorted(thread_ids)
