"""Seconds of requests one by one, looked up by length: prefix sums over the buckets instead of a sum over all of them.

The T decode steps after l tokens (LENS, Eq. 6) end at KV length c = l + T and take D(c) - D(l), where D(c) is what all
steps up to KV length c take. A float64 of D would leave a short decode after a long prompt few digits, so D is a sum of
two: whole multiples of a power of two, whose differences are exact, and the rest.

Worked number: TBT 2 ms up to 128 and 3 ms up to 256; l = 100, T = 59: D(159) - D(100) = 128 * 2 + 31 * 3 - 100 * 2
= 149 ms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.buckets import IntArray, Spans
from pytest_npubench.predictors.work import FloatArray

CHUNK_REQUESTS = 1 << 14  # a chunk's buffers stay in the processor's cache


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimes:
    """Tables by length, shape (longest length + 1,): ttft_s is that of a length's bucket, whole_s + rest_s is D."""

    ttft_s: FloatArray
    whole_s: FloatArray
    rest_s: FloatArray

    @classmethod
    def of(cls, prefill: Spans, ttft_s: Mapping[int, float], decode: Spans, tbt_s: Mapping[int, float]) -> RequestTimes:
        """Makes the times of requests from the seconds of each bucket."""
        widths = np.diff(decode.edges, prepend=0)
        step_s = np.asarray([tbt_s[bucket] for bucket in decode.buckets], dtype=np.float64)
        unit_s = 2 * math.ulp(float(step_s @ widths))  # of which all steps together are fewer than 2^53
        whole_s = np.rint(step_s / unit_s) * unit_s
        return cls(
            ttft_s=_by_length(prefill.edges, np.asarray([ttft_s[bucket] for bucket in prefill.buckets])),
            whole_s=_summed(whole_s, widths),
            rest_s=_summed(step_s - whole_s, widths),
        )

    def phases_s(self, input_tokens: IntArray, num_steps: IntArray) -> tuple[FloatArray, FloatArray]:
        """Prefill (Eq. 2) and decode of requests that fit, each of shape (num_requests,).

        Nothing is allocated in the loop: fresh memory costs more than what is computed in it.
        """
        prefill_s, decode_s = np.empty(input_tokens.size), np.empty(input_tokens.size)
        length = min(input_tokens.size, CHUNK_REQUESTS)
        ends, rests, spares = np.empty(length, dtype=np.int64), np.empty(length), np.empty(length)
        for chunk in chunks(input_tokens.size):
            first, whole_s = input_tokens[chunk], decode_s[chunk]
            last, rest_s, spare_s = ends[: first.size], rests[: first.size], spares[: first.size]
            np.add(first, num_steps[chunk], out=last)
            self.ttft_s.take(first, out=prefill_s[chunk], mode="clip")
            _between(self.whole_s, first, last, whole_s, spare_s)
            _between(self.rest_s, first, last, rest_s, spare_s)
            np.add(whole_s, rest_s, out=whole_s)
        return prefill_s, decode_s


def chunks(num_requests: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK_REQUESTS) for start in range(0, num_requests, CHUNK_REQUESTS))


def _between(up_to_s: FloatArray, first: IntArray, last: IntArray, out: FloatArray, spare: FloatArray) -> None:
    """up_to_s[last] - up_to_s[first]. A prompt beyond the table has no steps: both are the table's last entry."""
    up_to_s.take(last, out=out, mode="clip")
    up_to_s.take(first, out=spare, mode="clip")
    np.subtract(out, spare, out=out)


def _summed(step_s: FloatArray, widths: IntArray) -> FloatArray:
    """What all steps up to each length take, from 0 on: step_s of each bucket, which is so many lengths wide."""
    return np.concatenate([[0.0], np.cumsum(np.repeat(step_s, widths))])


def _by_length(edges: Sequence[int], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.repeat(values, np.diff(edges, prepend=-1))
