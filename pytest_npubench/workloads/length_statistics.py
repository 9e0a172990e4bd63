"""What a rebuilt workload's requests really have: the statistics of whole lengths after the workload's own filter.

No sampling: each length takes NUM_LEVELS equally likely values, length(u) at u = (i + 1/2)/NUM_LEVELS, and one of them
weighs as much as the share of partner lengths that keep the total within the filter:

    weight(input) = P(output <= max_total_tokens - input)        (inputs and outputs are independent)

Worked example: outputs of 1 or 3 tokens, equally likely, and a maximum of 4 in all: an input of 2 weighs 1/2.
The p-quantile is the smallest length that at least the fraction p of the requests does not exceed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_npubench.workloads.rebuilt import RebuiltWorkload

NUM_LEVELS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthStatistics:
    """Mean, median, 90th percentile and standard deviation of a length, in tokens."""

    mean: float
    median: float
    p90: float
    std: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadStatistics:
    """Both lengths of a workload, and the fraction of unfiltered draws that its filter keeps."""

    input: LengthStatistics
    output: LengthStatistics
    kept_fraction: float


def workload_statistics(workload: RebuiltWorkload, max_total_tokens: int | None = None) -> WorkloadStatistics:
    """Statistics after the workload's own filter, tightened to max_total_tokens where given."""
    levels = (np.arange(NUM_LEVELS) + 0.5) / NUM_LEVELS
    inputs, outputs = workload.input.lengths(levels), workload.output.lengths(levels)
    limit = workload.limits(max_total_tokens, None).max_total_tokens
    input_weights, output_weights = _partner_share(inputs, outputs, limit), _partner_share(outputs, inputs, limit)
    return WorkloadStatistics(
        input=_statistics(inputs, input_weights),
        output=_statistics(outputs, output_weights),
        kept_fraction=float(input_weights.mean()),
    )


def _partner_share(
    lengths: npt.NDArray[np.int64], partners: npt.NDArray[np.int64], limit: int | None
) -> npt.NDArray[np.float64]:
    if limit is None:
        return np.ones(len(lengths))
    return np.searchsorted(partners, limit - lengths, side="right") / len(partners)  # both rise with the level


def _statistics(lengths: npt.NDArray[np.int64], weights: npt.NDArray[np.float64]) -> LengthStatistics:
    cumulative = np.cumsum(weights) / weights.sum()
    mean = float(np.average(lengths, weights=weights))
    return LengthStatistics(
        mean=mean,
        median=float(lengths[np.searchsorted(cumulative, 0.5)]),
        p90=float(lengths[np.searchsorted(cumulative, 0.9)]),
        std=float(np.sqrt(np.average((lengths - mean) ** 2, weights=weights))),
    )
