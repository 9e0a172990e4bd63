"""Seconds of requests one by one, looked up by length: prefix sums over the buckets instead of a sum over all of them.

The T decode steps after l tokens (LENS, Eq. 6) end at KV length c = l + T. If c lies in the bucket of l they take
T TBT[b]. If not, they take D(c) - D(l), where D(c) is what all steps up to KV length c take.

Worked number: TBT 2 ms up to 128 and 3 ms up to 256; l = 100, T = 59: D(159) - D(100) = 128 * 2 + 31 * 3 - 100 * 2
= 149 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.buckets import IntArray, Spans
from pytest_npubench.predictors.work import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimes:
    """Tables by length, shape (longest length + 1,); length 0 is in the smallest bucket.

    ttft_s and tbt_s are those of a length's bucket, and edge is the last length of it; up_to_s is D.
    """

    ttft_s: FloatArray
    tbt_s: FloatArray
    up_to_s: FloatArray
    edge: IntArray

    @classmethod
    def of(cls, prefill: Spans, ttft_s: Mapping[int, float], decode: Spans, tbt_s: Mapping[int, float]) -> RequestTimes:
        """From the seconds of each bucket."""
        edges, lengths = np.asarray(decode.edges), np.arange(decode.edges[-1] + 1)
        begins_after = np.r_[0, edges[:-1]]
        step_s = np.asarray([tbt_s[bucket] for bucket in decode.buckets], dtype=np.float64)
        below_s = np.r_[0.0, np.cumsum(step_s * (edges - begins_after))[:-1]]
        entered = lengths - _by_length(edges, begins_after)
        return cls(
            ttft_s=_by_length(prefill.edges, np.asarray([ttft_s[bucket] for bucket in prefill.buckets])),
            tbt_s=_by_length(edges, step_s),
            up_to_s=_by_length(edges, below_s) + entered * _by_length(edges, step_s),
            edge=_by_length(edges, edges),
        )

    def prefill_s(self, input_tokens: IntArray) -> FloatArray:
        """Of prompts that fit, shape (num_requests,): Eq. 2."""
        return self.ttft_s.take(input_tokens)

    def decode_s(self, num_steps: IntArray, last: IntArray) -> FloatArray:
        """Of requests that fit, whose last step has KV length `last`, 0 where there is none."""
        first = last - num_steps
        return np.where(
            last <= self.edge.take(first),
            num_steps * self.tbt_s.take(last),
            self.up_to_s.take(last) - self.up_to_s.take(first),
        )


def _by_length(edges: Sequence[int] | IntArray, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.repeat(values, np.diff(edges, prepend=-1))
