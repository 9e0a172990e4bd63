"""Where a search simulates: a process says what this one would, and one that is killed is told of."""

from __future__ import annotations

import os

import pytest

from pytest_npubench.errors import MeasurementError
from pytest_npubench.extensions.planning.cli.search_pools import processes
from pytest_npubench.extensions.planning.cli.searched_settings import evaluate

from .test_best_settings import GOAL, named


def test_processes_say_what_this_one_would() -> None:
    chunks = [named(chunk, 1) for chunk in (64, 2048)]
    with processes(2) as pool:
        answers = [pool.submit(evaluate, one, GOAL, 2000.0) for one in chunks]
        assert [answer.result() for answer in answers] == [evaluate(one, GOAL, 2000.0) for one in chunks]


def test_a_process_that_is_killed_ends_the_search_with_what_to_do() -> None:
    with pytest.raises(MeasurementError, match="with --results it goes on"), processes(1) as pool:
        pool.submit(os._exit, 1).result()
