"""How often each bucket runs: the counts that LENS multiplies with measured times (arXiv 2606.18042, Eq. 5, 7 to 10,
13).

A padded batch decodes in the bucket of its longest KV cache, c_max(t) = max_i c_i(t) (Eq. 8), until its longest output
is complete (Eq. 9). What a finished request adds to that maximum is the engine's affair:

    grow     its c grows on with every padded step (the printed equations)
    freeze   its c stays where the request ended
    drop     it leaves the maximum

Ragged attention (Eq. 12 and 13) walks each request through its own buckets at 1/N of a step, N the compiled batch size.

Worked number: buckets (128, 256), requests (l_in, T) = (120, 4) and (10, 40). grow: c_max = 121..160, so 8 steps in 128
and 32 in 256. freeze: c_max = 121, 122, 123, 124, 124, ..., so 40 steps in 128. drop: 121..124, then 15..50, also 40 in
128. Ragged, N = 2: (4 + 40) / 2 = 22 steps in 128.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from pytest_npubench.core.buckets import IntArray, Spans, check_fits, steps_per_bucket
from pytest_npubench.errors import LengthError

FloatArray = npt.NDArray[np.float64]
Finished = Literal["grow", "freeze", "drop"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketWork:
    """Prefills and decode steps by bucket, and seconds of moving the KV cache in either phase.

    All arrays have shape (num_requests,) for requests one by one, () for a batch; moves may be () where there are none.
    """

    prefills: dict[int, FloatArray]
    steps: dict[int, FloatArray]
    prefill_moves_s: FloatArray = field(default_factory=lambda: np.zeros(()))
    decode_moves_s: FloatArray = field(default_factory=lambda: np.zeros(()))


def request_prefills(input_tokens: IntArray, prefill: Spans) -> dict[int, FloatArray]:
    """Each prompt once, in its bucket (Eq. 2)."""
    return _by_bucket(prefill, _prefills(prefill, input_tokens))


def request_steps(input_tokens: IntArray, num_steps: IntArray, decode: Spans) -> dict[int, FloatArray]:
    """Each request's own decode steps (Eq. 5)."""
    return _by_bucket(decode, steps_per_bucket(decode.edges, input_tokens, num_steps))


def padded_steps(
    input_tokens: IntArray, num_steps: IntArray, decode: Spans, finished: Finished
) -> dict[int, FloatArray]:
    """Decode steps of a padded batch (Eq. 8 to 10). Raises LengthError where c_max passes the largest bucket."""
    return _by_bucket(decode, FINISHED[finished](decode.edges, input_tokens, num_steps))


def ragged_steps(input_tokens: IntArray, num_steps: IntArray, decode: Spans, batch_size: int) -> dict[int, FloatArray]:
    """Decode steps of a batch under ragged attention, in whole-batch steps (Eq. 12 and 13): own steps over N."""
    return _by_bucket(decode, steps_per_bucket(decode.edges, input_tokens, num_steps).sum(axis=1) / batch_size)


def batch_prefills(input_tokens: IntArray, prefill: Spans, shared: bool) -> dict[int, FloatArray]:
    """One prefill a request (Eq. 7), or a single one padded to the longest prompt where the engine shares it."""
    prompts = input_tokens.max(keepdims=True) if shared else input_tokens
    return _by_bucket(prefill, _prefills(prefill, prompts).sum(axis=1))


def longest_kv_tokens(input_tokens: IntArray, num_steps: IntArray, finished: Finished) -> IntArray:
    """Returns the longest KV cache of a padded batch's decode steps, 0 where it has none."""
    if not num_steps.any():
        return np.zeros((), dtype=np.int64)
    ends = input_tokens.max() + num_steps.max() if finished == "grow" else (input_tokens + num_steps).max()
    return np.asarray(ends)


def _grown_steps(edges: Sequence[int], input_tokens: IntArray, num_steps: IntArray) -> IntArray:
    """c_max(t) = max l_in + t + 1: one request with the longest prompt and the longest output."""
    longest, steps = int(input_tokens.max()), int(num_steps.max())
    if steps and longest + steps > edges[-1]:
        raise LengthError(
            f"the padded batch grows to KV length {longest + steps} (longest prompt {longest}, {steps} steps of the"
            f" longest output), beyond the largest bucket, {edges[-1]} of {tuple(edges)}; every request alone fits: an"
            " engine that runs this batch wants finished='freeze' or 'drop'"
        )
    return steps_per_bucket(edges, longest, steps)


def _frozen_steps(edges: Sequence[int], input_tokens: IntArray, num_steps: IntArray) -> IntArray:
    """c_max(t) = max_i (l_i + min(t + 1, T_i)) never falls, so count the steps at or below each edge and take
    differences.

    It is at or below e at step t exactly if t + 1 <= e - l_i for every request with l_i + T_i > e.
    """
    steps = int(num_steps.max())
    if steps:
        check_fits("KV length of a frozen request", input_tokens + num_steps, edges)
    below = [_steps_below(edge, input_tokens, num_steps, steps) for edge in (0, *edges)]
    return np.diff(below)


def _steps_below(edge: int, input_tokens: IntArray, num_steps: IntArray, steps: int) -> int:
    passing = input_tokens + num_steps > edge
    return int(np.clip((edge - input_tokens[passing]).min(initial=steps), 0, steps))


def _dropped_steps(edges: Sequence[int], input_tokens: IntArray, num_steps: IntArray) -> IntArray:
    """Between two ends of requests the active ones stay the same, so c_max there is that of the longest active
    prompt."""
    total = np.zeros(len(edges), dtype=np.int64)
    start = 0
    for stop in np.unique(num_steps[num_steps > 0]).tolist():
        longest = int(input_tokens[num_steps >= stop].max())
        total += steps_per_bucket(edges, longest + start, stop - start)
        start = stop
    return total


FINISHED: dict[Finished, Callable[[Sequence[int], IntArray, IntArray], IntArray]] = {
    "grow": _grown_steps,
    "freeze": _frozen_steps,
    "drop": _dropped_steps,
}


def _prefills(prefill: Spans, input_tokens: IntArray) -> npt.NDArray[np.bool_]:
    upper = np.asarray(prefill.edges)[:, None]
    lower = np.asarray((0, *prefill.edges[:-1]))[:, None]
    return (lower < input_tokens) & (input_tokens <= upper)


def _by_bucket(spans: Spans, rows: npt.NDArray[np.generic]) -> dict[int, FloatArray]:
    """Rows of spans added up by bucket: a key that is not monotone has several spans in one bucket."""
    work: dict[int, FloatArray] = {}
    for bucket, row in zip(spans.buckets, rows, strict=True):
        work[bucket] = np.add(work.get(bucket, 0.0), row, dtype=np.float64)
    return work
