"""Lengths that users hand to a predictor: positive whole numbers, one or an array of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import LengthError

IntArray = npt.NDArray[np.int64]


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
        found = first(lengths, lengths > buckets[-1])
        raise LengthError(f"{name}: {found} is longer than the largest bucket, {buckets[-1]} of {tuple(buckets)}")


def first(array: npt.NDArray[np.generic], wrong: npt.NDArray[np.bool_]) -> str:
    """The first wrong value, with its index unless it stands alone: "-3 at index 7"."""
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
