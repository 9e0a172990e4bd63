"""Tests that pytest-timeout ends while they measure.

Its signal arrives in the middle of a measurement, as a failure of the test. The case is then invalid and stands in the
table with that reason. Its other method, the thread, ends the whole process and leaves the journal alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytest_npubench.errors import MeasurementError


@contextmanager
def timeout_as_error() -> Iterator[None]:
    """Raises MeasurementError in the place of pytest-timeout's failure."""
    try:
        yield
    except pytest.fail.Exception as ended:
        if not str(ended).startswith("Timeout"):
            raise
        raise MeasurementError(f"ended while it was measured: {ended}") from None
