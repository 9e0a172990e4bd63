"""Timing any callable on a device: warm up until steady, then samples that end when the device is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from pytest_npubench.campaign.warmup import warm_up

Synchronize = Callable[[Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTiming:
    """Seconds of each call, whether the warm-up became steady, and the compiles while samples were taken."""

    samples_s: tuple[float, ...]
    steady: bool
    num_late_compiles: int


def time_callable(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    synchronize: Synchronize,
    *,
    rounds: int,
    max_warmup: int,
    count_compiles: Callable[[], int],
) -> CallTiming:
    """Time `rounds` calls of function(*arguments, **keywords), each waited for, after at most max_warmup calls."""

    def call() -> float:
        started_s = perf_counter()
        synchronize(function(*arguments, **keywords))
        return perf_counter() - started_s

    _, steady = warm_up(call, max_repeats=max_warmup)
    compiles_before = count_compiles()
    samples_s = tuple([call() for _ in range(rounds)])
    return CallTiming(samples_s=samples_s, steady=steady, num_late_compiles=count_compiles() - compiles_before)
