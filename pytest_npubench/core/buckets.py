"""Which bucket serves a length, and how many decode steps fall into each (LENS, arXiv 2606.18042, Eq. 1 to 5).

bucket(l) = min{b in B | l <= b} (Eq. 1). Decode step t = 0..T-1 has KV length c_t = l_in + t + 1 (Eq. 3), so with
prev(b) the next smaller bucket, 0 for the smallest, the steps in bucket b are

    n_b = max(0, min(b, l_in + T) - max(prev(b), l_in))

Worked number: B = (128, 256), l_in = 100, T = 59: c = 101..159, n_128 = 128 - 100 = 28, n_256 = 159 - 128 = 31.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar, overload

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import ConfigError, LengthError

IntArray = npt.NDArray[np.int64]
Lengths = TypeVar("Lengths", int, IntArray)


def check_lengths(name: str, value: npt.ArrayLike, minimum: int = 1) -> IntArray:
    """`value` as int64, a scalar as an array of shape (). Raises LengthError naming the first value that is no
    length."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise LengthError(f"{name}: rows of different lengths; want one integer or an array of integers") from error
    if not array.size:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise LengthError(f"{name}: {_not_whole(array)}; want integers of 64 bits")
    if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
        raise LengthError(f"{name}: {array.max()} is too large; want integers of 64 bits")
    if array.min() < minimum:
        raise LengthError(f"{name}: {first(array, array < minimum)}; want at least {minimum}")
    return array.astype(np.int64, copy=False)


def check_fits(name: str, lengths: IntArray, buckets: Sequence[int]) -> None:
    """Raise LengthError naming the first length above the largest bucket, that bucket and the whole set."""
    if lengths.size and lengths.max() > buckets[-1]:
        too_long = first(lengths, lengths > buckets[-1])
        raise LengthError(f"{name}: {too_long} is longer than the largest bucket, {buckets[-1]} of {tuple(buckets)}")


def first(array: npt.NDArray[np.generic], wrong: npt.NDArray[np.bool_]) -> str:
    """Returns the first wrong value, with its index unless it stands alone: "-3 at index 7"."""
    index = np.unravel_index(int(np.argmax(wrong)), array.shape)
    value = array[index].item()
    if not index:
        return f"{value!r}"
    return f"{value!r} at index {int(index[0]) if len(index) == 1 else tuple(int(axis) for axis in index)}"


def _not_whole(array: npt.NDArray[np.generic]) -> str:
    if array.dtype.kind != "f":
        return f"values of type {array.dtype}"
    fractional = np.asarray(array != np.rint(array.astype(np.float64)))  # true for NaN as well
    return f"{first(array, fractional)} is not whole" if fractional.any() else f"values of type {array.dtype}"


class BucketKeys(Protocol):
    """How an engine maps lengths to buckets.

    Engines bucket other things than one length: Neuron has one set for context encoding and one for token generation,
    vLLM on TPU pads the number of requests of a decode step, whatever their lengths.

    Each method takes an integer or an array of them, and returns buckets of the same shape. Lengths run from 1 to the
    maximum of their phase.
    """

    @property
    def max_input_tokens(self) -> int:
        """Returns the longest prompt that prefill takes."""
        ...

    @property
    def max_kv_tokens(self) -> int:
        """Returns the longest KV cache that a decode step takes."""
        ...

    def prefill_key(self, input_tokens: Lengths) -> Lengths:
        """Returns the bucket that prefills a prompt of so many tokens."""
        ...

    def decode_key(self, kv_tokens: Lengths, batch_size: int) -> Lengths:
        """Returns the bucket that runs a decode step at so many KV tokens, in a batch compiled for batch_size
        requests."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallestBucket:
    """Eq. 1 in both phases: the smallest bucket that holds the length, out of a set for each phase."""

    prefill_buckets: tuple[int, ...]
    decode_buckets: tuple[int, ...]

    def __post_init__(self) -> None:
        check_buckets(self.prefill_buckets, "prefill_buckets")
        check_buckets(self.decode_buckets, "decode_buckets")

    @property
    def max_input_tokens(self) -> int:
        return self.prefill_buckets[-1]

    @property
    def max_kv_tokens(self) -> int:
        return self.decode_buckets[-1]

    def prefill_key(self, input_tokens: Lengths) -> Lengths:
        return bucket_of(self.prefill_buckets, input_tokens)

    def decode_key(self, kv_tokens: Lengths, batch_size: int) -> Lengths:
        return bucket_of(self.decode_buckets, kv_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """A key as ranges: lengths edges[k-1] < l <= edges[k] run in buckets[k]. Under Eq. 1 both tuples are the bucket
    set."""

    edges: tuple[int, ...]
    buckets: tuple[int, ...]

    @classmethod
    def of(cls, key: Callable[[IntArray], IntArray], max_tokens: int) -> Spans:
        """Walk a key once over every length, so that predicting needs no further call of it."""
        buckets = key(np.arange(1, max_tokens + 1))
        last = np.flatnonzero(np.diff(buckets, append=0))  # no bucket is 0, so the final length always ends a range
        return cls(edges=tuple((last + 1).tolist()), buckets=tuple(buckets[last].tolist()))


def check_buckets(buckets: Sequence[int], name: str = "buckets") -> tuple[int, ...]:
    """Returns the set as a tuple of int. Raises ConfigError unless it holds positive integers in strictly increasing
    order."""
    values = np.asarray(tuple(buckets))
    whole = values.ndim == 1 and values.size > 0 and values.dtype.kind in "iu"
    if not whole or values[0] < 1 or (values[1:] <= values[:-1]).any():
        raise ConfigError(f"{name}: {tuple(buckets)}; want positive integers, each larger than the one before")
    return tuple(int(value) for value in values)


@overload
def bucket_of(buckets: Sequence[int], length: int) -> int: ...
@overload
def bucket_of(buckets: Sequence[int], length: IntArray) -> IntArray: ...
def bucket_of(buckets: Sequence[int], length: int | IntArray) -> int | IntArray:
    """Eq. 1: the smallest bucket that holds the length; an array of lengths gives an array of buckets of its shape.

    Raises LengthError for a length below 1 or above the largest bucket, ConfigError for a set that is none.
    """
    edges = check_buckets(buckets)
    lengths = check_lengths("length", length)
    check_fits("length", lengths, edges)
    smallest = np.asarray(edges)[np.searchsorted(edges, lengths)]
    return smallest if isinstance(length, np.ndarray) else int(smallest)


def steps_per_bucket(buckets: Sequence[int], input_tokens: npt.ArrayLike, num_steps: npt.ArrayLike) -> IntArray:
    """n_b: how many of the num_steps decode steps after a prompt fall into each bucket.

    input_tokens and num_steps are scalars or of one shape; the result has shape (len(buckets), *shape), summing to
    num_steps over its first axis. Raises LengthError where a step's KV length passes the largest bucket.
    """
    edges = check_buckets(buckets)
    start = check_lengths("input_tokens", input_tokens)
    steps = check_lengths("num_steps", num_steps, minimum=0)
    end = last_kv_tokens(edges, start, steps)
    upper = np.asarray(edges).reshape(-1, *(1,) * end.ndim)
    lower = np.asarray((0, *edges[:-1])).reshape(upper.shape)
    counts: IntArray = np.maximum(np.minimum(upper, end) - np.maximum(lower, start), 0)
    return counts


def last_kv_tokens(edges: Sequence[int], input_tokens: IntArray, num_steps: IntArray) -> IntArray:
    """KV length of the last decode step, 0 where there is none. Raises LengthError above the largest edge."""
    check_fits("decode steps", num_steps, edges)  # before the sum, which could otherwise wrap around
    decoded = num_steps > 0
    check_fits("input_tokens", input_tokens * decoded, edges)
    last = (input_tokens + num_steps) * decoded
    check_fits("KV length of the last decode step", last, edges)
    return last
