"""Which point to repeat next, so that predictions that rest on several points are soon known well enough.

A prediction with the gradient g_i to point i's mean has the variance sum_i g_i^2 s_i^2 / n_i (delta method). One repeat
more of point i, of t_i seconds, takes g_i^2 s_i^2 (1/n_i - 1/(n_i + 1)) from it. Repeating the point with the largest
gain a second is optimal at every cost it reaches, as each point's share is convex in n_i, and tends to Neyman's
allocation with costs, n_i ~ |g_i| s_i / sqrt(t_i) (Cochran, Sampling Techniques, 1977, section 5.5).

Stopping once a variance looks small picks variances that came out too small, and of skewed samples also means that did
(optional stopping). So each point has MIN_REPEATS before anything is chosen, bands are looked at between batches of
repeats only, they have Student's t with each point's own degrees of freedom, and no point counts as steadier than the
median coefficient of variation of all: looking steady spares no point its repeats.

Worked number: two points of mean 10 ms, s = (2, 2) ms, 9 repeats each, g = (2, 1): gains 16 / 90 and 4 / 90 ms^2, so at
equal costs the first is repeated; where it takes 8 times as long, the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pytest_npubench.errors import ConfigError
from pytest_npubench.stats.checks import FloatArray
from pytest_npubench.stats.error import t_half_width

MIN_REPEATS = 8
COVERAGE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Repeats:
    """A point's repeats so far: their number, mean and sample variance, and the seconds that one more takes.

    Raises ConfigError for fewer than MIN_REPEATS, or a mean or cost that is not above 0.
    """

    num: int
    mean_s: float
    variance_s2: float
    cost_s: float

    def __post_init__(self) -> None:
        if self.num < MIN_REPEATS:
            raise ConfigError(f"{self.num} repeats; want at least {MIN_REPEATS} to choose by their variance")
        for name in ("mean_s", "cost_s"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; want more than 0 seconds")

    @classmethod
    def of(cls, samples_s: Sequence[float], cost_s: float | None = None) -> Repeats:
        """Repeats of these samples; a further one takes their mean time unless cost_s says otherwise."""
        if len(samples_s) < 2:
            raise ConfigError(f"{len(samples_s)} repeats; want at least {MIN_REPEATS} to choose by their variance")
        mean_s = float(np.mean(samples_s))
        return cls(
            num=len(samples_s),
            mean_s=mean_s,
            variance_s2=float(np.var(samples_s, ddof=1)),
            cost_s=mean_s if cost_s is None else cost_s,
        )


def half_widths(points: Sequence[Repeats], gradients: FloatArray) -> FloatArray:
    """Half the width of each prediction's band, [num_predictions]; gradients [num_predictions, num_points].

    Raises ConfigError for shapes that differ.
    """
    nums = _nums(points)
    return t_half_width((_shares(points, gradients) / nums).T, nums - 1, COVERAGE)


def next_repeats(points: Sequence[Repeats], gradients: FloatArray, *, limit: float, batch_s: float) -> tuple[int, ...]:
    """How often to repeat each point in the next batch of at most batch_s seconds; all 0: the bands are within `limit`,
    or the best repeat takes longer than batch_s.

    Each repeat is the one that narrows the widest of the bands most a second, until all would be within the limit.
    gradients [num_predictions, num_points]; the limit is in the predictions' unit. Raises ConfigError for a limit that
    is not above 0, and as half_widths.
    """
    if not limit > 0:
        raise ConfigError(f"limit is {limit!r}; want more than 0")
    nums, shares = _nums(points), _shares(points, gradients)
    costs_s = np.array([point.cost_s for point in points])
    chosen, left_s = np.zeros(len(points), dtype=int), batch_s
    while True:
        half = t_half_width((shares / nums).T, nums - 1, COVERAGE)
        if half.max() <= limit:
            break
        best = int((shares[half.argmax()] * (1 / nums - 1 / (nums + 1)) / costs_s).argmax())
        if costs_s[best] > left_s:
            break
        chosen[best] += 1
        nums[best] += 1
        left_s -= costs_s[best]
    return tuple(chosen.tolist())


def shared_visits(weights: FloatArray, costs_s: FloatArray, round_s: float) -> FloatArray:
    """How often a round of so many seconds visits each point, a number that need not be whole: once, or as Neyman has
    it, in proportion to w_i / sqrt(t_i), where w_i is the root of sum_k g_ki^2 s_i^2 over the predictions and t_i what
    a visit costs. That makes the sum of the predictions' variances least. A round too short for it has each once.

    Worked number: w = (2, 1), t = (1, 1) s, 9 s: 6 and 3 visits; t = (1, 4) s, 8 s: 4 and 1.
    """
    shares = weights / np.sqrt(costs_s)
    order = np.argsort(shares)  # those with the smallest share are visited once, as long as it would be less
    for num_once in range(len(order)):
        once, rest = order[:num_once], order[num_once:]
        left_s = round_s - costs_s[once].sum()
        scale = left_s / (shares[rest] * costs_s[rest]).sum() if shares[rest].any() else 0.0
        if scale * shares[rest].min() >= 1:
            visits = np.ones(len(order))
            visits[rest] = scale * shares[rest]
            return visits
    return np.ones(len(order))


def _nums(points: Sequence[Repeats]) -> FloatArray:
    return np.array([point.num for point in points], dtype=np.float64)


def _shares(points: Sequence[Repeats], gradients: FloatArray) -> FloatArray:
    """g_i^2 s_i^2 of each prediction and point, in the shape of the gradients."""
    if gradients.ndim != 2 or gradients.shape[1] != len(points) or not gradients.size:
        raise ConfigError(f"gradients have shape {gradients.shape}; want (num_predictions, {len(points)})")
    variances_s2 = np.array([point.variance_s2 for point in points])
    squared_means = np.array([point.mean_s for point in points]) ** 2
    return np.asarray(gradients**2 * np.maximum(variances_s2, np.median(variances_s2 / squared_means) * squared_means))
