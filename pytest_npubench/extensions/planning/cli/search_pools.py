"""Where the simulations of a search run: processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pytest_npubench.errors import MeasurementError


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Runs functions elsewhere, `width` of them at a time."""

    submit: Callable[..., Future[Any]]
    width: int


@contextmanager
def processes(number: int) -> Iterator[Pool]:
    """So many processes, started as they are wanted. Raises MeasurementError where one is killed."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(number, context, initializer=_end_with_owner)
    try:
        yield Pool(submit=pool.submit, width=number)
    except BrokenProcessPool as error:
        raise MeasurementError("a process of the search was killed; with --results it goes on where it was") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _end_with_owner() -> None:
    """What each process begins with: it waits for work, and would not notice that its owner was killed."""

    def wait() -> None:
        owner = multiprocessing.parent_process()
        assert owner is not None
        owner.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
