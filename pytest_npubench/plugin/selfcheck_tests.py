"""The tests of `npubench selfcheck`, which copies this file into a folder of its own.

One callable on the device, products of a matrix in a row, with the fault in it that $NPUBENCH_PLANTED names. The first
process finds out how many products take the device some milliseconds and leaves the number for the others, so that all
of them do the same.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

PLANTED = os.environ.get("NPUBENCH_PLANTED", "")
SIZE = 256
CALL_S = 5e-3
NUM_PRODUCTS = Path(__file__).with_name("products.txt")
WORK = {"slower": (1.25,), "tail": (1, 1, 1, 1, 1, 1, 1, 5), "half": (0.5,), "clock": (1.5,)}
"""Of each planted fault how much of the work the calls do in turn."""
pytestmark = [pytest.mark.cpu, pytest.mark.cuda, pytest.mark.tpu]


class Products:
    """vector -> vector @ matrix, so many times in a row in one binary. The matrix keeps lengths."""

    def __init__(self) -> None:
        import jax

        random = np.random.default_rng(0)
        self.matrix = np.linalg.qr(random.normal(size=(SIZE, SIZE)))[0]
        self.rows = random.normal(size=(SIZE, SIZE))
        self._operands = jax.device_put((self.rows.astype(np.float32), self.matrix.astype(np.float32)))
        self._run = jax.jit(lambda count, x, matrix: jax.lax.fori_loop(0, count, lambda _, y: y @ matrix, x))

    def __call__(self, count: int) -> Any:
        return self._run(count, *self._operands)

    def many(self) -> int:
        """How many products all processes do in a call."""
        if not NUM_PRODUCTS.exists():
            self(1).block_until_ready()
            count = 20
            while self._seconds(count) < CALL_S:
                count *= 2
            NUM_PRODUCTS.write_text(str(count), encoding="utf-8")
        return int(NUM_PRODUCTS.read_text(encoding="utf-8"))

    def _seconds(self, count: int) -> float:
        started_s = time.perf_counter()
        self(count).block_until_ready()
        return time.perf_counter() - started_s


@pytest.fixture
def products() -> Products:
    return Products()


def test_work(npubench: Callable[..., Any], products: Products, standing_clock: None) -> None:
    count = products.many()
    shares = cycle(WORK.get(PLANTED, (1,)))
    npubench(lambda: products(round(count * next(shares))))


def test_answer(npubench: Callable[..., Any], products: Products) -> None:
    """Measured first, then looked at, as a careful test does."""
    count = products.many()
    right = products.rows @ np.linalg.matrix_power(products.matrix, count)
    npubench(partial(products, count))
    answer = products(count - 1 if PLANTED == "answer" else count)
    assert np.linalg.norm(np.asarray(answer) - right) < 0.5 * np.linalg.norm(right)


@pytest.mark.npubench(max_median_s=1e-9 if PLANTED == "answer" else 3600.0)
def test_limit(npubench: Callable[..., Any], products: Products) -> None:
    """Red beside a wrong answer: a run that is red for one reason must not accept what is wrong for another."""
    npubench(partial(products, 20))


@pytest.fixture
def standing_clock(monkeypatch: pytest.MonkeyPatch, products: Products) -> None:
    """Stops every name by which a module has a clock of Python's, as libraries for tests do."""
    products.many()
    if PLANTED == "clock":
        for clock in (time.perf_counter, time.monotonic, time.time):
            now_s = clock()
            for module, name in list(_names(clock)):
                monkeypatch.setattr(module, name, lambda now_s=now_s: now_s)


def _names(clock: Callable[[], float]) -> Iterator[tuple[ModuleType, str]]:
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()) if isinstance(module, ModuleType) else ():
            if value is clock:
                yield module, name
