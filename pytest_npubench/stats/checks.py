"""What every statistic here asks of its input, and the names of its arrays.

A number that cannot be used is refused where it enters: a NaN that travels comes out as a verdict.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from pytest_npubench.errors import ConfigError, MeasurementError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


def finite(name: str, values: npt.ArrayLike) -> FloatArray:
    """Returns the values as floats in their own shape, which may be empty. Raises MeasurementError for one not
    finite."""
    array = np.asarray(values, dtype=np.float64)
    return require(name, array, np.isfinite(array), "a finite number")


def row(name: str, values: npt.ArrayLike) -> FloatArray:
    """Returns the values, of shape (n,). Raises MeasurementError: no value, another shape, or one that is not
    finite."""
    array = finite(name, values)
    if array.ndim != 1:
        raise MeasurementError(f"{name} has shape {array.shape}; want one row of numbers")
    if not array.size:
        raise MeasurementError(f"{name}: no values")
    return array


def require(name: str, array: FloatArray, good: npt.ArrayLike, wanted: str) -> FloatArray:
    """Returns the array itself where `good`, of its shape, holds everywhere; MeasurementError names the first value if
    not."""
    bad = ~np.asarray(good, dtype=np.bool_)
    if bad.any():
        index = int(np.argmax(bad))
        raise MeasurementError(f"{name}: value {index} of {bad.size} is {array.flat[index]}; want {wanted}")
    return array


def fraction(name: str, value: float) -> float:
    """Returns the value itself where it lies between 0 and 1, the ends excluded. Raises ConfigError otherwise."""
    if not 0.0 < value < 1.0:
        raise ConfigError(f"{name} is {value!r}; want a fraction between 0 and 1, such as 0.95")
    return value


def positive(name: str, value: float) -> float:
    """Returns the value itself where it is finite and more than 0. Raises ConfigError otherwise."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} is {value!r}; want a finite number above 0")
    return value
