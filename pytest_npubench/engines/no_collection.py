"""No garbage collection while something is timed, for a full one stops everything for tens of milliseconds, or while
much is made that is not garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection(*, collects_before: bool = True) -> Iterator[None]:
    """Collects before, unless told not to, and not during; on again afterwards where it was on."""
    was_on = gc.isenabled()
    if collects_before:
        gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
