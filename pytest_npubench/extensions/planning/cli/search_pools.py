"""Where the simulations of a search run: processes of this machine, or a Ray cluster.

On every machine of a cluster there are this package, of the same version, and the files that the search names.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pytest_npubench
from pytest_npubench.errors import ConfigError, MeasurementError

WIDTH_OF_A_CPU = 2  # one task runs, the next one is on its way


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Runs functions elsewhere, `width` of them at a time."""

    submit: Callable[..., Future[Any]]
    width: int


@contextmanager
def processes(number: int) -> Iterator[Pool]:
    """Started as they are wanted. Raises MeasurementError where one is killed."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(number, context, initializer=_end_with_owner)
    try:
        yield Pool(submit=pool.submit, width=number)
    except BrokenProcessPool as error:
        raise MeasurementError("a process of the search was killed; with --results it goes on where it was") from error
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def ray_cluster(address: str) -> Iterator[Pool]:
    """address: of `ray.init`, such as "auto", "10.0.0.1:6379" or "ray://10.0.0.1:10001". A task whose machine dies is
    run again elsewhere. Raises ConfigError without Ray, and where the cluster cannot be reached or run the tasks.
    """
    try:
        import ray
    except ImportError as error:
        raise ConfigError(f"{error.name} is not installed: pip install pytest-npubench[ray]") from error
    with redirect_stdout(sys.stderr):  # there Ray tells of machines that died
        try:
            ray.init(address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError) as error:
            raise ConfigError(f"the Ray cluster at {address}: {_last_line(error)}") from error
        try:
            yield _pool_of(ray)
        except ray.exceptions.RayError as error:
            raise ConfigError(f"the Ray cluster at {address}: {_last_line(error)}") from error
        finally:
            ray.shutdown()


def _pool_of(ray: Any) -> Pool:
    remote = lru_cache(ray.remote)  # made once, it is sent once
    there = ray.get(remote(_version).remote())
    if there != pytest_npubench.__version__:
        raise ConfigError(f"the cluster has pytest-npubench {there}; want {pytest_npubench.__version__} as here")

    def submit(function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        found: Future[Any] = remote(function).remote(*arguments).future()
        return found

    return Pool(submit=submit, width=WIDTH_OF_A_CPU * max(1, int(ray.cluster_resources().get("CPU", 1))))


def _last_line(error: Exception) -> str:
    return str(error).strip().rpartition("\n")[2]


def _version() -> str:
    return pytest_npubench.__version__


def _end_with_owner() -> None:
    """What each of the processes begins with: they wait for work, and know of no kill of who gives it."""

    def wait() -> None:
        owner = multiprocessing.parent_process()
        assert owner is not None
        owner.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
