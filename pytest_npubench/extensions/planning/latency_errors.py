"""Predicted against measured requests: errors of TTFT, TPOT and E2E in their means and 99th percentiles.

Requests of all rounds count together, and what is predicted is the mean over runs: a percentile of all of their
requests at once would be one of more requests than were measured. The errors of the median round stand beside them:
what is wrong with a model is so in every round, what others on the machine did while requests were served is not.

How well rounds tell an error is the larger of two standard deviations: of what several runs predict, and of the error
over rounds that are drawn again from these (a bootstrap of whole rounds, whose requests are not independent: Davison
and Hinkley, 1997, section 3.8). A percentile of few rounds may hang on a single one, which no run shows.

Worked example: means of 100 and 300 ms predicted as 110 and 290 ms: +10 % and -3.3 % in the rounds, 0 % together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, pstdev
from typing import Protocol

from pytest_npubench.core.measurement import LatencyError
from pytest_npubench.errors import MeasurementError
from pytest_npubench.stats.checks import FloatArray

LATENCIES: Mapping[str, Callable[[Served], float | None]] = {
    "ttft": lambda request: request.ttft_s,
    "tpot": lambda request: request.tpot_s,
    "e2e": lambda request: request.e2e_latency_s,
}
P99 = 0.99
NUM_DRAWN = 200


class Served(Protocol):
    """A request that was served, as serving.metrics.RequestRecord; None where it has not so many tokens."""

    @property
    def ttft_s(self) -> float | None: ...
    @property
    def tpot_s(self) -> float | None: ...
    @property
    def e2e_latency_s(self) -> float: ...


Round = tuple[Sequence[Served], Sequence[Sequence[Served]]]
"""Measured requests, and those of each run that predicts them, as many in all rounds."""


def latency_errors(rounds: Sequence[Round]) -> dict[str, LatencyError]:
    """The errors by name of the latency. Raises MeasurementError where no request has one: TPOT wants two tokens."""
    errors = {}
    for name, of in LATENCIES.items():
        values = [[_values(of, side) for side in (real, *runs)] for real, runs in rounds]
        complete = [row for row in values if row[0]]
        if not complete:
            number = sum(len(real) for real, _ in rounds)
            raise MeasurementError(f"no request of {number} has a {name}; want requests of two tokens and more")
        real, *runs = ([value for row in complete for value in row[side]] for side in range(len(complete[0])))
        means, tails = list(map(fmean, runs)), list(map(_p99, runs))
        mean_drawn, p99_drawn = _drawn(complete)
        errors[name] = LatencyError(
            mean_s=fmean(real),
            predicted_mean_s=fmean(means),
            p99_s=_p99(real),
            predicted_p99_s=fmean(tails),
            round_mean_error=median(fmean(map(fmean, runs)) / fmean(real) - 1 for real, *runs in complete),
            round_p99_error=median(fmean(map(_p99, runs)) / _p99(real) - 1 for real, *runs in complete),
            mean_spread=max(pstdev(means) / fmean(means), mean_drawn),
            p99_spread=max(pstdev(tails) / fmean(tails), p99_drawn),
        )
    return errors


def _drawn(rounds: Sequence[Sequence[Sequence[float]]]) -> tuple[float, float]:
    """Standard deviations of the errors of mean and p99 over draws of as many rounds."""
    import numpy as np

    sides = [[np.array(side) for side in row] for row in rounds]
    random, errors = np.random.default_rng(0), []
    for _ in range(NUM_DRAWN):
        drawn = random.integers(len(sides), size=len(sides))
        real, *runs = (np.concatenate([sides[row][side] for row in drawn]) for side in range(len(sides[0])))
        mean, tail = fmean(run.mean() for run in runs), fmean(map(_p99, runs))
        errors.append((mean / real.mean() - 1, tail / _p99(real) - 1))
    mean_sd, p99_sd = np.std(errors, axis=0).tolist()
    return mean_sd, p99_sd


def _values(of: Callable[[Served], float | None], side: Sequence[Served]) -> list[float]:
    return [value for one in side if (value := of(one)) is not None]


def _p99(values: Sequence[float] | FloatArray) -> float:
    """np.quantile to the last bit, in a tenth of the time: each draw asks for as many as there are runs."""
    import numpy as np

    at = P99 * (len(values) - 1)
    low, high = int(at), min(int(at) + 1, len(values) - 1)
    below, above = np.partition(values, (low, high))[[low, high]].tolist()
    share = at - low
    return float(above - (above - below) * (1 - share) if share >= 0.5 else below + (above - below) * share)
