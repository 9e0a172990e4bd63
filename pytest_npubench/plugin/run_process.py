"""Which process of a run this is, and what all of them know the run by."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest

_INPUT = "npubench_run"
_ID = pytest.StashKey[str]()


def run_id(config: pytest.Config) -> str:
    """The run's id: equal in all processes of a run that write the journal, and in all runs of one process, as
    pytest.main makes them. Such runs share their process' properties, so they are one session of a baseline."""
    if hasattr(config, "workerinput"):
        given: str = config.workerinput[_INPUT]
        return given
    from pytest_npubench.store.journal_format import RUN

    if _ID not in config.stash:
        given_id = os.environ.pop(RUN, "")  # a pytest started from here is another run
        config.stash[_ID] = given_id or _id_of_process(os.getpid())
    return config.stash[_ID]


@cache
def _id_of_process(_number: int) -> str:
    """The id of a process; `_number` tells a process from its forks."""
    from pytest_npubench.store.journal_format import new_id

    return new_id()


def hand_on(config: pytest.Config, workerinput: dict[str, Any]) -> None:
    """What a worker is told before it starts."""
    workerinput[_INPUT] = run_id(config)


def worker(config: pytest.Config) -> str | None:
    """The xdist worker this process is, None for the controller and for a run without xdist."""
    return os.environ.get("PYTEST_XDIST_WORKER") if hasattr(config, "workerinput") else None
