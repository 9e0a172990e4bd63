"""Which process of a run this is, and what all of them know the run by."""

from __future__ import annotations

import os
from typing import Any

import pytest

_INPUT = "npubench_run"
_ID = pytest.StashKey[str]()


def run_id(config: pytest.Config) -> str:
    """The same for all processes of a run that write the journal."""
    if hasattr(config, "workerinput"):
        given: str = config.workerinput[_INPUT]
        return given
    from pytest_npubench.store.journal_format import RUN, new_id

    if _ID not in config.stash:
        config.stash[_ID] = os.environ.pop(RUN, "") or new_id()  # a pytest started from here is another run
    return config.stash[_ID]


def hand_on(config: pytest.Config, workerinput: dict[str, Any]) -> None:
    """What a worker is told before it starts."""
    workerinput[_INPUT] = run_id(config)


def worker(config: pytest.Config) -> str | None:
    """The xdist worker this process is, None for the controller and for a run without xdist."""
    return os.environ.get("PYTEST_XDIST_WORKER") if hasattr(config, "workerinput") else None
