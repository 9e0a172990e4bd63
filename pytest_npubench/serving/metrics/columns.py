"""Many records as columns, so that a million token times are arithmetic on arrays.

# N = num_requests, M = num_tokens of all, G = num_gaps of all

Worked example: two requests with tokens at (1, 2, 4) and (3, 3.5): token_times_s (1, 2, 4, 3, 3.5), gaps_s (1, 2, 0.5)
of requests (0, 0, 1): the step from one request to the next is no gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pytest_npubench.serving.metrics.record import RequestRecord
from pytest_npubench.stats.checks import BoolArray, FloatArray

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestColumns:
    """Records in the order given, which is that of arrival. NaN where a time point does not exist.

    arrival_s, dispatched_s, scheduled_s, first_token_s, last_token_s, num_tokens, finished: [N]. gaps_s: [G], request
    after request, and gap_request: [G] the index of the request each is of.
    """

    arrival_s: FloatArray
    dispatched_s: FloatArray
    scheduled_s: FloatArray
    first_token_s: FloatArray
    last_token_s: FloatArray
    num_tokens: IntArray
    finished: BoolArray
    gaps_s: FloatArray
    gap_request: IntArray

    @property
    def num_requests(self) -> int:
        return int(self.arrival_s.size)

    @property
    def num_gaps(self) -> IntArray:
        """Counts the gaps of each request, [N]."""
        return np.maximum(self.num_tokens - 1, 0)

    @property
    def ttft_s(self) -> FloatArray:
        """[N], NaN where there is no token yet."""
        return self.first_token_s - self.arrival_s


def columns_of(records: Sequence[RequestRecord]) -> RequestColumns:
    """Returns the records as columns; there may be none."""
    num_tokens = np.array([record.num_tokens for record in records], dtype=np.int64)
    times = np.concatenate([np.empty(0), *(np.asarray(record.token_times_s, np.float64) for record in records)])
    stops = np.cumsum(num_tokens)  # index behind each request's last token
    within = np.ones(max(times.size - 1, 0), dtype=np.bool_)
    within[(stops - 1)[(stops > 0) & (stops < times.size)]] = False
    return RequestColumns(
        arrival_s=_column([record.arrival_s for record in records]),
        dispatched_s=_column([record.dispatched_s for record in records]),
        scheduled_s=_column([record.scheduled_s for record in records]),
        first_token_s=_times_at(times, stops - num_tokens, num_tokens),
        last_token_s=_times_at(times, stops - 1, num_tokens),
        num_tokens=num_tokens,
        finished=np.array([record.finished for record in records], dtype=np.bool_),
        gaps_s=np.diff(times)[within],
        gap_request=np.repeat(np.arange(num_tokens.size), np.maximum(num_tokens - 1, 0)),
    )


def _column(values: Sequence[float | None]) -> FloatArray:
    return np.array(values, dtype=np.float64)  # None becomes NaN


def _times_at(times: FloatArray, index: IntArray, num_tokens: IntArray) -> FloatArray:
    slowest = np.full(num_tokens.size, np.nan)
    slowest[num_tokens > 0] = times[index[num_tokens > 0]]
    return slowest
