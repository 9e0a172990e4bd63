"""Where a search simulates: a process that is killed is told of."""

from __future__ import annotations

import os

import pytest

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.cli.search_pools import processes


def test_a_process_that_is_killed_ends_the_search_with_what_to_do() -> None:
    with pytest.raises(MeasurementError, match="with --results it goes on"), processes(1) as pool:
        pool.submit(os._exit, 1).result()
