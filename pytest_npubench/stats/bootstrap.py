"""A second opinion on the gate that assumes no distribution: resample nights, then processes, then samples.

The location of a process is its median latency, of a night the mean log of its processes' medians, of a baseline the
mean over its nights. Kalibera & Jones (2013, 10.1145/2555670.2464160, section 9) resample every level of the hierarchy,
the outermost first, so that samples of one process never pass for independent ones.

Two things are added. The current night is one night: resampling its processes and samples shows how well *it* is
known, not how nights differ, so each resample also moves it as a random baseline night lies off the baseline's mean.
And nights differ in part because their samples do, which the inner levels resample already; the distances d of K nights
are rescaled to what is left (Davison & Hinkley 1997, Bootstrap Methods, section 3.8):

    d -> d (t / z) sqrt(max(0, s^2 - inner) / mean(d^2)),    s^2 = sum(d^2) / (K - 1)

where inner is the mean variance of a night's inner resamples, and t / z, Student's quantile with K - 1 degrees of
freedom over the normal's, makes up for a spread known from few nights (Hesterberg 2015, 10.1080/00031305.2015.1089789).

Worked number: baseline nights at log medians 0 and 0.02 of constant samples, current 0.05, coverage 0.95: the log ratio
is 0.04, s^2 = 0.0002, t / z = 12.71 / 1.96, each d becomes +-0.0917: two nights bound little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from pytest_npubench.errors import ConfigError, MeasurementError
from pytest_npubench.stats.checks import FloatArray, fraction, require, row
from pytest_npubench.stats.error import student_quantile

Processes = Sequence[Sequence[float]]


def hierarchical_ratio_interval(
    baseline_sessions: Sequence[Processes],
    current_processes: Processes,
    *,
    coverage: float = 0.95,
    num_resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float] | None:
    """Interval (low, high) of the log of (current / baseline) latency: 0.01 is 1 % slower. Samples in seconds.

    None below two baseline sessions: how nights differ is then unknown. The same seed gives the same interval. Raises
    MeasurementError: a session without processes, a process without samples, a sample that is not finite or
    not above 0; ConfigError: a coverage outside (0, 1), fewer than 100 resamples.
    """
    fraction("coverage", coverage)
    if num_resamples < 100:
        raise ConfigError(f"num_resamples is {num_resamples}; want at least 100")
    baseline = [_checked(f"baseline session {index}", one) for index, one in enumerate(baseline_sessions)]
    current = _checked("current", current_processes)
    if len(baseline) < 2:
        return None
    rng = np.random.default_rng(seed)
    observed = np.array([_location(one) for one in baseline])
    noise = np.array([_resampled_locations(one, num_resamples, rng) for one in baseline]) - observed[:, None]
    distances = _night_distances(observed, inner_variance=float(noise.var(axis=1).mean()), coverage=coverage)

    nights = rng.integers(len(baseline), size=(num_resamples, len(baseline)))
    inner = noise[nights, rng.integers(num_resamples, size=nights.shape)]
    means = observed.mean() + np.mean(distances[nights] + inner, axis=1)
    moves = distances[rng.integers(len(baseline), size=num_resamples)]
    ratios = _resampled_locations(current, num_resamples, rng) + moves - means
    low, high = np.quantile(ratios, [0.5 - coverage / 2, 0.5 + coverage / 2])
    return float(low), float(high)


def _night_distances(observed: FloatArray, inner_variance: float, coverage: float) -> FloatArray:
    """How far each night lies from their mean, rescaled to the variance that its own samples do not explain."""
    distances: FloatArray = observed - observed.mean()
    square = float(np.mean(distances**2))
    if square == 0:
        return distances
    unexplained = max(0.0, float(observed.var(ddof=1)) - inner_variance)
    student, normal = student_quantile(0.5 + coverage / 2, np.array([observed.size - 1.0, math.inf])).tolist()
    scale: float = math.sqrt(unexplained / square) * student / normal
    return distances * scale


def _resampled_locations(processes: list[FloatArray], num_resamples: int, rng: np.random.Generator) -> FloatArray:
    """A night's location in each of num_resamples resamples of its processes and their samples."""
    medians = np.array([_resampled_medians(samples, num_resamples, rng) for samples in processes])
    chosen = rng.integers(len(processes), size=(num_resamples, len(processes)))
    picked: FloatArray = medians[chosen, rng.integers(num_resamples, size=chosen.shape)]
    return np.asarray(picked.mean(axis=1))


def _resampled_medians(samples: FloatArray, num_resamples: int, rng: np.random.Generator) -> FloatArray:
    chosen = rng.integers(samples.size, size=(num_resamples, samples.size))
    return np.asarray(np.log(np.median(samples[chosen], axis=1)))


def _location(processes: list[FloatArray]) -> float:
    return float(np.mean([math.log(np.median(samples)) for samples in processes]))


def _checked(name: str, processes: Processes) -> list[FloatArray]:
    if not processes:
        raise MeasurementError(f"{name}: no processes; want at least one")
    rows = [row(f"{name}, process {index}", samples) for index, samples in enumerate(processes)]
    for index, samples in enumerate(rows):
        require(f"{name}, process {index}", samples, samples > 0, "more than 0 seconds")
    return rows
