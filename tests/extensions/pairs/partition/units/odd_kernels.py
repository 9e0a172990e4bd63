"""Kernels for the static unit that misbehave as told."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pytest_npubench.extensions.pairs.partition.units.arena import SharedArena


def build(spec: Mapping[str, object], arena: SharedArena) -> Callable[[], float]:
    if spec["does"] == "not build":
        raise ZeroDivisionError("division by zero")
    if spec["does"] == "count":
        return partial(count, arena.view("count"))
    return {"exit": die, "fail": fail, "nothing": nothing, "sleep": sleep}[str(spec["does"])]


def count(words: NDArray[np.int64]) -> float:
    words[0] += 1
    return 0.0


def sleep() -> float:
    time.sleep(600)
    return 0.0


def die() -> float:
    sys.stderr.write("the unit is on fire\n")
    sys.stderr.flush()
    os._exit(3)


def fail() -> float:
    raise RuntimeError("a graph without an end")


def nothing() -> float:
    return 0.25
