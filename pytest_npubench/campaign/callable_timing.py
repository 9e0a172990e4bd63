"""Timing any callable on a device: warm up until steady, then samples that end when the device is done.

Where the device was disturbed while they were taken, they are taken again, at most twice; the last ones are kept
whatever happened, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from pytest_npubench.backends.telemetry.round_state import RoundState
from pytest_npubench.campaign.warmup import warm_up
from pytest_npubench.campaign.watch import Watch, Watched

MAX_ATTEMPTS = 3
Synchronize = Callable[[Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTiming:
    """Seconds of each call, whether the warm-up became steady, and the compiles while samples were taken.

    `disturbed` says why these samples, the last of several attempts, should not count; state is the device's meanwhile.
    """

    samples_s: tuple[float, ...]
    steady: bool
    num_late_compiles: int
    disturbed: str | None = None
    state: RoundState | None = None


def time_callable(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    synchronize: Synchronize,
    *,
    rounds: int,
    max_warmup: int,
    count_compiles: Callable[[], int],
    watch: Watch | None = None,
) -> CallTiming:
    """Time `rounds` calls of function(*arguments, **keywords), each waited for, after at most max_warmup calls.

    With a watch, raises DeviceUnavailableError where the device is lost.
    """

    def call() -> float:
        started_s = perf_counter()
        synchronize(function(*arguments, **keywords))
        return perf_counter() - started_s

    _, steady = warm_up(call, max_repeats=max_warmup)
    compiles_before = count_compiles()
    samples_s, watched = _attempts(lambda: tuple([call() for _ in range(rounds)]), watch)
    return CallTiming(
        samples_s=samples_s,
        steady=steady,
        num_late_compiles=count_compiles() - compiles_before,
        disturbed=watched.disturbed,
        state=watched.state,
    )


def _attempts(take: Callable[[], tuple[float, ...]], watch: Watch | None) -> tuple[tuple[float, ...], Watched]:
    if watch is None:
        return take(), Watched()
    for _ in range(MAX_ATTEMPTS):
        watch.begin()
        samples_s = take()
        watched = watch.end()
        if watched.disturbed is None:
            return samples_s, watched
    reason = f"{MAX_ATTEMPTS} of {MAX_ATTEMPTS} attempts disturbed: {watched.disturbed}"
    return samples_s, replace(watched, disturbed=reason)
