"""The id of a run, which its sessions in the journal share: under xdist the controller makes it, workers inherit it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from pytest_npubench.store.run_id import RUN, new_id

_INPUT = "npubench_run"
_ID = pytest.StashKey[str]()


def run_id(config: pytest.Config) -> str:
    """The same for all processes of a run that write the journal."""
    if hasattr(config, "workerinput"):
        given: str = config.workerinput[_INPUT]
        return given
    if _ID not in config.stash:
        config.stash[_ID] = os.environ.pop(RUN, "") or new_id()  # a pytest started from here is another run
    return config.stash[_ID]


def hand_on(config: pytest.Config, workerinput: dict[str, Any]) -> None:
    """What a worker is told before it starts."""
    workerinput[_INPUT] = run_id(config)
