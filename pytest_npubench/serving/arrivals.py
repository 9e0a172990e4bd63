"""When requests arrive: Poisson, gamma, evenly spaced, or as a trace had them.

Gaps between arrivals have the mean 1 / rate; their coefficient of variation (CV = standard deviation / mean) says how
bursty they are: 0 evenly spaced, 1 Poisson, more in bursts. Gamma gaps have any CV:

    shape k = 1 / CV^2,    scale = 1 / (rate k)

Gaps are quantiles of the uniforms of numpy's PCG64, whose stream is fixed over versions and platforms (NEP 19); numpy's
own exponential and gamma are not. So a seed gives the same arrivals everywhere, at twice the rate the same pattern at
half the gaps, and a shorter load is the beginning of a longer one. The first request comes one gap after 0.

Worked number: CV 1.83 (Layered Prefill, Table 12) is shape 1 / 3.349 = 0.2986.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import ConfigError, WorkloadError
from pytest_npubench.serving.request import PromptContent, ServingRequest, check_load
from pytest_npubench.stats.checks import FloatArray

Times = tuple[float, ...]
MIN_CV, MAX_CV = 0.001, 100.0


class Realised(NamedTuple):
    """What arrivals came to: requests a second, and the CV of their gaps, None with fewer than two gaps."""

    rate_per_s: float
    cv: float | None


def poisson(rate_per_s: float, n: int, seed: int) -> Times:
    """n arrivals of a Poisson process, in seconds. Raises ConfigError: a rate not above 0, an n below 1, a seed below
    0."""
    _check(rate_per_s, n)
    return _times(-np.log1p(-_uniforms(n, seed)) / rate_per_s)


def gamma(rate_per_s: float, cv: float, n: int, seed: int) -> Times:
    """n arrivals with gamma gaps of this CV, in seconds; CV 1 is `poisson` of the same seed.

    Raises ConfigError as `poisson`, and for a CV outside 0.001 to 100, beyond which gamma gaps are all equal or all 0.
    """
    from scipy import special  # a quarter of a second that collecting cases need not pay

    _check(rate_per_s, n)
    if not MIN_CV <= cv <= MAX_CV:  # a NaN compares false
        raise ConfigError(f"cv is {cv!r}; want {MIN_CV} to {MAX_CV}; evenly spaced arrivals are `uniform`")
    shape = 1 / cv**2
    gaps = special.gammaincinv(shape, _uniforms(n, seed)) / (rate_per_s * shape)
    return _times(np.asarray(gaps, dtype=np.float64))


def uniform(rate_per_s: float, n: int) -> Times:
    """n evenly spaced arrivals, in seconds. Raises ConfigError as `poisson`."""
    _check(rate_per_s, n)
    return tuple((np.arange(1, n + 1) / rate_per_s).tolist())


def replay(times_s: Sequence[float], rate_per_s: float | None = None) -> Times:
    """Returns a trace's arrivals from its first one at 0, stretched or squeezed to a rate where one is given.

    Raises WorkloadError: no arrivals, one not finite, out of order, or all at one time where a rate is asked for;
    ConfigError for a rate that is not above 0.
    """
    times = _in_order(times_s)
    times = times - times[0]
    if rate_per_s is None:
        return tuple(times.tolist())
    _check_positive("rate_per_s", rate_per_s)
    return tuple((times * (_rate(times) / rate_per_s)).tolist())


def realised(times_s: Sequence[float]) -> Realised:
    """Rate (n - 1) / (last - first) and CV of the gaps. Raises WorkloadError as `replay`, and where they have no
    rate.

    Worked number: 0, 1, 2, 4 s: 0.75 requests/s and CV 0.577 / 1.333 = 0.433.
    """
    times = _in_order(times_s)
    rate = _rate(times)
    gaps = np.diff(times)
    return Realised(rate, float(gaps.std(ddof=1)) * rate if gaps.size > 1 else None)


def load_of(
    times_s: Sequence[float],
    lengths: Sequence[tuple[int, int]],
    contents: Sequence[PromptContent] | None = None,
) -> tuple[ServingRequest, ...]:
    """Requests 0, 1, ... of these arrivals, (prompt, output) tokens, and prompts where they are known, one each.

    Raises WorkloadError: another number of times than of lengths or prompts, times not finite, negative or out of
    order, lengths below 1.
    """
    if len(times_s) != len(lengths):
        raise WorkloadError(f"{len(times_s)} arrival times for {len(lengths)} lengths; want one for each")
    if contents is not None and len(contents) != len(lengths):
        raise WorkloadError(f"{len(contents)} prompts for {len(lengths)} lengths; want one for each")
    load = tuple(
        ServingRequest(id=index, arrival_s=time, prompt_tokens=prompt, output_tokens=output, content=content)
        for index, (time, (prompt, output), content) in enumerate(
            zip(times_s, lengths, contents or repeat(None, len(lengths)), strict=True)
        )
    )
    check_load(load)
    return load


def _uniforms(n: int, seed: int) -> FloatArray:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed is {seed!r}; want a whole number >= 0")
    return np.random.Generator(np.random.PCG64(seed)).random(n)


def _times(gaps: npt.NDArray[np.float64]) -> Times:
    return tuple(np.cumsum(gaps).tolist())


def _rate(times: FloatArray) -> float:
    span = float(times[-1] - times[0])
    if not span > 0:
        raise WorkloadError(f"{times.size} arrivals within {span} s have no rate; want two at different times")
    return (times.size - 1) / span


def _in_order(times_s: Sequence[float]) -> FloatArray:
    times = np.asarray(times_s, dtype=np.float64)
    if not times.size:
        raise WorkloadError("no arrival times; want at least one")
    finite = np.isfinite(times)
    if not finite.all():
        index = int(np.argmin(finite))
        raise WorkloadError(f"arrival time {index} is {times[index]}; want a finite number of seconds")
    later = times[1:] >= times[:-1]
    if not later.all():
        index = int(np.argmin(later))
        raise WorkloadError(f"arrival time {index + 1} is {times[index + 1]} after {times[index]}; want them in order")
    return times


def _check(rate_per_s: float, n: int) -> None:
    _check_positive("rate_per_s", rate_per_s)
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
        raise ConfigError(f"n is {n!r}; want a whole number of requests >= 1")


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:  # a NaN compares false
        raise ConfigError(f"{name} is {value!r}; want a finite number above 0")
