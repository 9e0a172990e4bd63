"""Where a series of sessions changed its level for good.

Three steps over x, the log median of each session (n of them):
1. Spikes are clipped to 4 sigma about the median of their five neighbours; sigma = 1.4826 median|x[i+1] - x[i]| / √2,
   which a step does not move. One slow night is no change of level.
2. Of all segmentations with at least 3 sessions a segment the one is taken that minimises
   Σ (x - mean of its segment)² / sigma² + 3 ln n · (number of changes), exactly, by optimal partitioning in n² steps
   (Jackson et al., IEEE Signal Processing Letters 12, 2005).
3. A change stays while it is proven and matters: the evidence by which the gate alarms (verdict.evidence), of the 24
   sessions before it and the 24 from it on, is 10 n : 1, and medians are 1 % apart. The weakest goes first, and the
   rest is weighed anew. The noise law is that of the distances of sessions from the mean of their segment.

Worked example: ten sessions of 0.0 and ten of 0.1, each +- 0.01 in turn: one change, before the session of index 10.

docs/history.md has false alarms and power; tests/store/history/test_change_points.py checks smaller samples of both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.verdict.evidence import NUM_NIGHTS, change_for_worse
from pytest_npubench.verdict.noise_law import Nights, NoiseLaw, fit_law

MIN_SEGMENT = 3
MARGIN = 0.01
ODDS = 10.0  # to 1, for each session
PENALTY = 3.0
CLIP_SIGMAS = 4.0
SMALLEST_SIGMA = 1e-4  # figures that repeat exactly still have a scale


def change_points(log_values: Sequence[float]) -> tuple[int, ...]:
    """Indices of the sessions that begin a new level, ascending; none below 6 sessions.

    log_values are finite, [num_sessions].
    """
    if len(log_values) < 2 * MIN_SEGMENT:
        return ()
    values = np.asarray(log_values, dtype=np.float64)
    sigma = max(1.4826 * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2), SMALLEST_SIGMA)
    calm = _without_spikes(values, sigma)
    return _proven(calm, _segmented(calm / sigma))


def _without_spikes(values: FloatArray, sigma: float) -> FloatArray:
    windows = (values[max(0, index - 2) : index + 3].tolist() for index in range(len(values)))
    middle = np.array(list(map(statistics.median, windows)))
    return np.clip(values, middle - CLIP_SIGMAS * sigma, middle + CLIP_SIGMAS * sigma)


def _segmented(scaled: FloatArray) -> list[int]:
    """The begins of all segments but the first, by penalised least squares."""
    num_values = len(scaled)
    penalty = PENALTY * math.log(num_values)
    centred = scaled - np.median(scaled)  # sums of squares lose fewer digits near 0
    sums = np.concatenate(([0.0], np.cumsum(centred)))
    squares = np.concatenate(([0.0], np.cumsum(centred**2)))
    least = np.full(num_values + 1, np.inf)  # least[end]: the cost of the best segmentation of the first `end` values
    least[0] = -penalty  # the first segment is no change
    begin_of = np.zeros(num_values + 1, dtype=np.int64)  # where the last segment of that segmentation begins
    for end in range(MIN_SEGMENT, num_values + 1):
        begins = np.arange(end - MIN_SEGMENT + 1)
        within = squares[end] - squares[begins] - (sums[end] - sums[begins]) ** 2 / (end - begins)
        costs = least[begins] + penalty + within
        begin_of[end] = np.argmin(costs)
        least[end] = costs[begin_of[end]]
    segments = [int(begin_of[num_values])]
    while segments[-1]:
        segments.append(int(begin_of[segments[-1]]))
    return segments[-2::-1]


def _proven(values: FloatArray, begins: list[int]) -> tuple[int, ...]:
    if not begins:
        return ()
    law, needed = _law(np.split(values, begins)), math.log(ODDS * len(values))
    while begins:
        pairs = list(pairwise(np.split(values, begins)))
        evidence = [_log_evidence(law, before, after) for before, after in pairs]
        weakest = int(np.argmin(evidence))
        if evidence[weakest] >= needed:
            steps = [abs(float(np.median(after) - np.median(before))) for before, after in pairs]
            weakest = int(np.argmin(steps))
            if steps[weakest] >= math.log1p(MARGIN):
                break
        del begins[weakest]
    return tuple(begins)


def _law(segments: list[FloatArray]) -> NoiseLaw:
    apart = np.concatenate([part - part.mean() for part in segments])
    return fit_law(_one_case(apart * math.sqrt(len(apart) / (len(apart) - len(segments)))))


def _log_evidence(law: NoiseLaw, before: FloatArray, after: FloatArray) -> float:
    """Weighs whether the level changed between the two, upwards or downwards."""
    before, after = before[-NUM_NIGHTS:], after[:NUM_NIGHTS]
    nights = _one_case(np.concatenate([before, after])).turned(1 if after.mean() > before.mean() else -1)
    num_accepted = np.full(1, float(MIN_SEGMENT))
    return float(change_for_worse(law, nights, _one_case(np.empty(0)), num_accepted, 1.0).log_evidence[0])


def _one_case(entries: FloatArray) -> Nights:
    return Nights(entries=entries[None], variance=np.ones((1, len(entries))))
