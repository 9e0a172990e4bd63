"""Warm up until steady: repeat until the latest samples agree, and say so if they never do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

TOLERANCE = 0.15
WINDOW = 3
LEAST = 2
MAX_REPEATS = 12
MAX_S = 3.0


def warm_up(
    sample: Callable[[], float],
    *,
    earlier: Sequence[float] = (),
    max_repeats: int = MAX_REPEATS,
    max_s: float = MAX_S,
) -> tuple[float, bool]:
    """Returns the latest sample in seconds, and whether the last three lay within TOLERANCE of the smallest of them.

    At least two samples are taken where max_repeats allows; then it ends when steady, after max_repeats, or once max_s
    were spent. `earlier` are samples that were taken before; they count.
    """
    samples = list(earlier)
    while len(samples) < min(LEAST, max_repeats) or (
        not _steady(samples) and len(samples) < max_repeats and sum(samples) < max_s
    ):
        samples.append(sample())
    return samples[-1], _steady(samples)


def _steady(samples: list[float]) -> bool:
    latest = samples[-WINDOW:]
    return len(latest) == WINDOW and max(latest) <= min(latest) * (1 + TOLERANCE)
