"""Where the simulations of a search run: processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Runs functions elsewhere, `width` of them at a time."""

    submit: Callable[..., Future[Any]]
    width: int


@contextmanager
def processes(number: int) -> Iterator[Pool]:
    """Started as they are wanted."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(number, context, initializer=_end_with_owner)
    try:
        yield Pool(submit=pool.submit, width=number)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _end_with_owner() -> None:
    """What each of the processes begins with: they wait for work, and know of no kill of who gives it."""

    def wait() -> None:
        owner = multiprocessing.parent_process()
        assert owner is not None
        owner.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
